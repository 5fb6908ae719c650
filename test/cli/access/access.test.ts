/** Callers with tokens over TLS: who may do what, and what a caller without the right sees. */
import { statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import type { Role } from '../../../lib/protocol/api/contract/roles.ts';
import { freshZone } from '../../support/apps.ts';
import { Authority } from '../../support/certificates.ts';
import { matchLists } from '../../support/match-lists.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('the CLI with tokens over TLS', async (t) => {
  const authority = await Authority.create(t);
  const { certFile: tlsCertFile, keyFile: tlsKeyFile } = await authority.issue();
  const { database, url, startApp } = await freshZone(t);
  const { url: at } = await startApp({ access: 'tokens', tlsCertFile, tlsKeyFile });
  const cli = new Cli(t, [at]);
  const config = path.join(cli.home, 'config.json');
  writeFileSync(config, JSON.stringify({ databaseUrl: url, access: 'tokens' }));
  const run = (token: string | undefined, ...args: string[]) => {
    const env = { CNAPI_CA_FILE: authority.caFile, ...(token && { CNAPI_TOKEN_FILE: path.join(cli.home, token) }) };
    return cli.start(args, { env }).ended;
  };

  await t.test('without the CA or a token, the error names what is missing', async (t) => {
    t.match(at, /^https:/);
    t.match(await cli.run('servers'), { code: 3, stderr: /its CA is not trusted|self-signed.*CNAPI_CA_FILE/ });
    const refused = await run(undefined, 'servers');
    t.match(refused, { code: 1, stderr: /Unauthorized; at https:[\s\S]*CNAPI_TOKEN_FILE/ });
    t.equal(refused.stderr.split('CNAPI_TOKEN_FILE').length, 2, 'it is said once where the token is taken from');
  });

  await t.test('an admin creates tokens, each may do what its role allows, and a revoked one nothing', async (t) => {
    await cli.run('token', 'create', 'root', '--role', 'admin', '--config', config, '--file', 'root');
    const made = await run('root', 'token', 'create', 'eyes', '--role', 'reader', '--expires', '1h', '--file', 'eyes');
    t.match(made, { code: 0, stdout: 'eyes\n', stderr: /\(eyes, reader\) is valid until/ });
    t.equal(statSync(path.join(cli.home, 'eyes')).mode & 0o777, 0o600);
    t.match(await run('eyes', 'servers'), { code: 0 });
    t.match(await run('eyes', 'lock', 'default', 'a', 'b', '--', 'echo', 'ran'), {
      code: 1,
      stdout: '',
      stderr: /needs the role operator; .*--role operator\. .*--config FILE, or --local .*\(Forbidden; [^\n]*\n$/,
    });
    t.match(await run('eyes', 'token', 'list'), { code: 1, stderr: /Forbidden/ });
    const shown = await run('root', 'token', 'create', 'deploy', '--role', 'operator');
    t.match(shown.stdout, /^cnapi_[0-9a-f]{32}_[-\w]{43}\n$/);
    writeFileSync(path.join(cli.home, 'deploy'), shown.stdout, { mode: 0o600 });
    t.match(await run('deploy', 'lock', 'default', 'a', 'b', '--', 'echo', 'ran'), { code: 0, stdout: 'ran\n' });
    const list = await run('root', 'token', 'list');
    t.match(list.stdout, /deploy +operator/);
    t.notMatch(list.stdout, shown.stdout.trim(), 'the list never shows a token');
    t.match(await run('root', 'token', 'revoke', 'eyes'), { code: 0, stdout: /is revoked/ });
    t.match(await run('eyes', 'servers'), { code: 1, stderr: /Unauthorized/ });
    t.match(await run('root', 'token', 'revoke', 'eyes'), { code: 2, stderr: /There is no token eyes/ });
    const audit = await run('root', 'audit', '--actor', 'deploy', '--json');
    matchLists(t, JSON.parse(audit.stdout), [
      { action: 'ReleaseTicket' },
      { action: 'CreateTicket', roles: ['operator'], status: 202 },
    ]);
    await database.query(`update cnapi_audit set details = jsonb_build_object('text', repeat('x', 5_000_000))`);
    const large = await run('root', 'audit', '--actor', 'deploy');
    t.match(large.stdout, /ReleaseTicket[\s\S]*CreateTicket/, 'records of several short pages');
    t.match(
      (await run('root', 'token', 'create', 'x', '--role', 'reader', '--file', 'eyes')).stderr,
      /--file eyes exists: it may hold another token or key; remove it or choose another name/,
    );
    t.match(
      JSON.parse((await run('root', 'token', 'list', '--all', '--json')).stdout),
      { length: 3 },
      'a failed create leaves no token',
    );
  });
});

t.test('a reader sees that contents are withheld, and a secret is shown to nobody', async (t) => {
  const { database, startApp } = await freshZone(t);
  const { url } = await startApp({ access: 'tokens', trustedNetworks: { '127.0.0.0/8': 'agent' } });
  const tokens = new Tokens({ database, random: systemRandom });
  const as = async (role: Role) => (await tokens.create({ name: `the ${role}`, role, createdBy: 'the test' })).token;
  const [reader, operator] = [await as('reader'), await as('operator')];
  const machine = newMachine();
  const { agent } = await joinAgent(url, machine, { capabilities: ['task:command_execute'] });
  t.teardown(() => agent.close());
  const cli = new Cli(t, [url]);
  const run = (token: string, ...args: string[]) =>
    cli.start(args, { env: { CNAPI_TOKEN: token, PASSWORD: 'hushed' } }).ended;
  const { serverUuid } = machine;
  await until(async () => (await run(operator, 'servers')).stdout.includes('running'));

  t.match(
    await run(reader, 'port-forward', serverUuid, ':80'),
    { code: 1, stdout: '', stderr: /needs the role operator/ },
    'before it listens',
  );
  const vm = { uuid: serverUuid, alias: 'web', state: 'running' };
  agent.send({ type: 'status', status: { vms: { [vm.uuid]: vm } } });
  await until(async () => (await run(reader, 'vm', 'list')).stdout.includes('web'));
  t.match(await run(reader, 'vm', 'get', 'web'), { code: 0, stdout: /running/, stderr: /only to the role operator/ });

  const refused = await run(operator, 'exec', serverUuid, '--secret-env', 'NONE', '--', 'true');
  t.match(refused, { code: 2, stderr: /--secret-env NONE: there is no such variable here/ });
  const started = await run(operator, 'exec', '--detach', serverUuid, '--secret-env', 'PASSWORD', '--', 'asked');
  const id = started.stdout.trim();
  const { attempt, params } = await agent.next('task');
  matchLists(t, params, { env: { PASSWORD: 'hushed' }, secret_params: ['/env/PASSWORD'] });
  const result = { exitCode: 3, signal: null, stdout: 'written\n', stderr: '' };
  agent.send({ type: 'task_end', id, attempt, outcome: 'complete', result, reportedAt: 'now' });
  await until(async () => (await run(operator, 'task', id)).stdout.includes('written'));

  const told = /its parameters and output are shown only to the role operator and above/;
  for (const args of [
    ['task', id],
    ['task', id, '--follow'],
    ['tasks', serverUuid],
  ]) {
    const seen = await run(reader, ...args);
    t.match(seen.stderr, told, args.join(' '));
    t.notMatch(seen.stdout + seen.stderr, /written|asked|hushed|missing/, args.join(' '));
  }
  t.match((await run(reader, 'task', id)).stdout, /exit code +3/);
  t.equal((await run(reader, 'task', id, '--follow')).code, 1, 'the exit code is still known');
  const job = (await run(operator, 'job', 'start', serverUuid, '--detach', '--', 'asked')).stdout.trim();
  for (const args of [
    ['output', job],
    ['output', job, serverUuid],
    ['output', job, '--json'],
    ['watch', job],
    ['retry', job],
    ['list', 'command=*'],
  ]) {
    await until(async () => JSON.parse((await run(reader, 'job', 'status', job, '--json')).stdout).status !== 'voting');
    const seen = await run(reader, 'job', ...args);
    t.match(seen, { code: 1, stdout: '', stderr: /right task-contents/ }, args.join(' '));
  }
  const all = await run(operator, 'task', id, '--json');
  t.match(JSON.parse(all.stdout), { params: { env: { PASSWORD: '(secret)' } } });
  t.notMatch(all.stderr, told);
});
