import { execFile } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import t from 'tap';
import { startZone } from '../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';

const tool = path.resolve(import.meta.dirname, '../../tools/prove/main.ts');

t.setTimeout(FILE_TIMEOUT_MS);

t.test('npm run prove', { skip: noRedisServer, timeout: FILE_TIMEOUT_MS }, async (t) => {
  const zone = await startZone(t, { agents: 1, simulated: 10 });
  const prove = (url: string) =>
    promisify(execFile)(process.execPath, [tool, '--url', url]).then(
      ({ stdout }) => ({ code: 0, said: stdout }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        said: `${error.stdout}${error.stderr}`,
      }),
    );

  // As the supervisor does it.
  const supervisor = setInterval(() => {
    for (const { program } of zone.instances) if (!program.isAlive) program.start();
  }, 200);
  t.teardown(() => clearInterval(supervisor));

  await t.test('holds while each instance is killed and started again', async (t) => {
    const { code, said } = await prove(zone.instances[1]?.url ?? '');
    t.equal(code, 0, said);
    t.match(said, `this machine's: ${zone.agents[0]?.serverUuid}`);
    t.equal(said.match(/^killed /gm)?.length, 3);
  });

  await t.test('does not hold when a server goes away meanwhile', async (t) => {
    const proof = prove(zone.instances[1]?.url ?? '');
    await sleep(5_000);
    await zone.fleet?.kill();
    await sleep(3_000);
    zone.fleet?.start();
    const { code, said } = await proof;
    t.equal(code, 1, said);
    t.match(said, /became unknown at .*: (closed|instance-lost)/);
  });

  await t.test('says so when it cannot be tried', async (t) => {
    clearInterval(supervisor);
    for (const { program } of zone.instances) await program.kill();
    t.match(await prove(zone.instances[0]?.url ?? ''), { code: 2, said: /no instance answers/ });
  });
});
