/** `cnapi role|deployment|noderole`, with a real instance and real agents on simulated machines. */
import t from 'tap';
import type { Noderole } from '../../../lib/protocol/api/annealer.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { Cli } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a deployment from its roles to its end, as docs/annealer.md shows it', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const servers = (await startAgents(t, [app], 2)).map(({ serverUuid }) => serverUuid);
  const [one = '', two = ''] = servers;
  const cli = new Cli(t, [app.url]);
  const done = async (...args: string[]) => {
    const ran = await cli.run(...args);
    t.equal(ran.code, 0, `cnapi ${args.join(' ')}: ${ran.stderr}`);
    return ran;
  };
  await done('role', 'create', 'name=ntp', 'jig=script', 'script=echo clock', 'flags=["implicit"]');
  await done('role', 'create', 'name=web', 'jig=script', 'script=echo web', 'requires=["ntp"]');
  await done('deployment', 'create', 'name=shop');

  await t.test('bind binds what the role requires, and commit waits until all is active', async (t) => {
    t.match(await done('deployment', 'bind', 'shop', 'web', one, two), { stderr: /4 new noderoles/ });
    const proposed = await done('noderole', 'get', `web@${one}`);
    t.match(proposed.stdout, /why +.*cnapi deployment commit/);
    t.match(await done('deployment', 'commit', 'shop', '--wait'), { stderr: /4 noderoles committed, 2 of them due/ });
    const all = await cli.json<Noderole[]>('noderole', 'list', '--deployment', 'shop');
    t.same(
      all.map(({ role, state }) => `${role} ${state}`),
      ['ntp active', 'ntp active', 'web active', 'web active'],
    );
  });

  await t.test('a failed run is named with its reason, blocks what is below, and is retried', async (t) => {
    await done('role', 'update', 'ntp', 'script=exit 7');
    await done('noderole', 'propose', `ntp@${one}`);
    const failed = await cli.run('deployment', 'commit', 'shop', '--wait');
    t.match(failed, { code: 1, stderr: /ScriptFailed: the script ended with exit code 7/ });
    const blocked = await done('noderole', 'get', `web@${one}`);
    t.match(blocked.stdout, /why +blocked by noderole .*in error/);
    t.match((await done('noderole', 'get', `web@${two}`)).stdout, /state +active/, 'the other server is not touched');
    await done('role', 'update', 'ntp', 'script=echo clock');
    await done('noderole', 'retry', `ntp@${one}`);
    await done('deployment', 'commit', 'shop', '--wait');
    t.match((await done('noderole', 'get', `web@${one}`)).stdout, /state +active/);
  });

  await t.test('noderoles are deleted in any order of their names, and an unknown one stops no other', async (t) => {
    const refused = await cli.run('noderole', 'delete', `ntp@${one}`);
    t.match(refused, { code: 1, stderr: /others require it; delete them first/ });
    const names = [`ntp@${one}`, `nothing@${one}`, `web@${one}`, `ntp@${two}`, `web@${two}`];
    t.match(await cli.run('noderole', 'delete', ...names), { code: 1, stderr: /There is no noderole nothing@/ });
    t.same(await cli.json('noderole', 'list'), []);
    t.match(await cli.run('noderole', 'delete', `web@${one}`), { code: 2, stderr: /There is no noderole web@/ });
  });
});
