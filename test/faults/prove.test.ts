import { execFile } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startZone } from '../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';

const tool = path.resolve(import.meta.dirname, '../../tools/prove/main.ts');

t.setTimeout(FILE_TIMEOUT_MS);

t.test(
  'npm run prove detects whether servers stay running while instances are killed',
  { skip: noRedisServer, timeout: FILE_TIMEOUT_MS },
  async (t) => {
    const zone = await startZone(t, { agents: 1, simulated: 10 });
    const prove = (url: string) => {
      const child = execFile(process.execPath, [tool, '--url', url]);
      let said = '';
      for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (said += text));
      const ended = once(child, 'close').then(([code]) => ({ code, said }));
      return { ended, watches: () => until(() => /running servers/.test(said), 'it to watch the servers') };
    };

    // Restarts instances as the supervisor does.
    const supervisor = setInterval(() => {
      for (const { program } of zone.instances) if (!program.isAlive) program.start();
    }, 200);
    t.teardown(() => clearInterval(supervisor));

    await t.test('it succeeds while each instance is killed and restarted', async (t) => {
      const { code, said } = await prove(zone.instances[1]?.url ?? '').ended;
      t.equal(code, 0, said);
      t.match(said, `this machine's: ${zone.agents[0]?.serverUuid}`);
      t.equal(said.match(/^killed /gm)?.length, 3);
    });

    await t.test('it fails when a server becomes unknown meanwhile', async (t) => {
      const proof = prove(zone.instances[1]?.url ?? '');
      await proof.watches();
      await zone.fleet?.kill();
      await sleep(3_000);
      zone.fleet?.start();
      const { code, said } = await proof.ended;
      t.equal(code, 1, said);
      t.match(said, /became unknown at .*: (closed|instance-lost)/);
    });

    await t.test('it exits 2 when no instance answers', async (t) => {
      clearInterval(supervisor);
      for (const { program } of zone.instances) await program.kill();
      t.match(await prove(zone.instances[0]?.url ?? '').ended, { code: 2, said: /no instance answers/ });
    });
  },
);
