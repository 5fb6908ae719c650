/**
 * The programs with TLS and tokens, as an operator runs them: configuration, first token, instance,
 * agent and command line.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { ownProgram, Program } from '../../../tools/processes/program.ts';
import { Authority } from '../../support/certificates.ts';
import { freePort } from '../../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const cli = path.resolve(import.meta.dirname, '../../../tools/cnapi');

t.test('an operator sets up a zone with TLS and tokens, runs a command and revokes the tokens', async (t) => {
  const { url: databaseUrl } = await freshDatabase(t);
  const folder = mkdtempSync(path.join(tmpdir(), 'cnapi-access-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue({ names: 'DNS:cnapi.example,IP:127.0.0.1' });
  const port = await freePort();
  const url = `https://127.0.0.1:${port}`;
  const config = path.join(folder, 'config.json');
  const tls = { tlsCertFile: certFile, tlsKeyFile: keyFile };
  writeFileSync(config, JSON.stringify({ cnapiUuid: randomUUID(), port, databaseUrl, access: 'tokens', ...tls }));

  const adminToken = path.join(folder, 'admin.token');
  const environment = { PATH: process.env.PATH ?? '', HOME: folder, CNAPI_URL: url, CNAPI_CA_FILE: authority.caFile };
  const run = (args: string[], env: Record<string, string> = { CNAPI_TOKEN_FILE: adminToken }) =>
    new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
      execFile(cli, args, { env: { ...environment, ...env } }, (error, stdout, stderr) =>
        resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
      );
    });
  const start = (name: string, file: string, args: string[]) => {
    const program = new Program({ name, command: ownProgram(file, args), logFile: path.join(folder, `${name}.log`) });
    t.teardown(() => program.kill());
    program.start();
    return program;
  };

  const toFile = async (file: string, args: string[], env?: Record<string, string>) => {
    const made = await run(['token', 'create', ...args, '--file', file], env);
    t.match(made, { code: 0, stdout: `${file}\n` }, made.stderr);
  };

  // The first token is created through the configuration, before anyone can sign in over the
  // network.
  await toFile(adminToken, ['admin', '--role', 'admin', '--config', config], {});
  const instance = start('instance', 'server.ts', ['--config', config]);
  await until(async () => instance.log().some(({ msg }) => msg === 'instance: ready'), 'the instance to be ready');

  t.match(
    await run(['servers'], {}),
    { code: 1, stdout: '', stderr: /401|Unauthorized/ },
    'a request without a token is refused',
  );
  const distrustful = await run(['servers'], { CNAPI_TOKEN_FILE: adminToken, CNAPI_CA_FILE: '' });
  t.match(distrustful, { code: 3, stderr: /its CA is not trusted/ }, 'an instance is not trusted without its CA');

  const serverUuid = randomUUID();
  const data = path.join(folder, 'agent');
  const agentToken = path.join(folder, 'agent.token');
  await toFile(agentToken, ['one-server', '--role', 'agent', '--server', serverUuid]);
  const trust = ['--ca', authority.caFile, '--token-file', agentToken];
  const agent = start('agent', 'lib/agent/main.ts', ['--data', data, '--uuid', serverUuid, '--url', url, ...trust]);
  const statusOf = async () => {
    const { stdout } = await run(['servers', '--json']);
    return (JSON.parse(stdout) as { uuid: string; status: string }[]).find(({ uuid }) => uuid === serverUuid)?.status;
  };
  await until(async () => (await statusOf()) === 'running', 'the server to be running');

  const jobToken = path.join(folder, 'job.token');
  await toFile(jobToken, ['job', '--role', 'operator', '--expires', '1h']);
  const asJob = { CNAPI_TOKEN_FILE: jobToken };
  const done = await run(['exec', serverUuid, '--', 'echo', 'hello there'], asJob);
  t.match(done, { code: 0, stdout: /hello there/ }, done.stderr);
  t.match(await run(['token', 'list'], asJob), { code: 1, stderr: /role admin/ }, 'an operator is not an admin');

  const audited: Record<string, unknown>[] = JSON.parse((await run(['audit', '--json'])).stdout);
  const said = audited.map(({ actor, action, status }) => [actor, action, status]);
  t.ok(
    said.some(([actor, , status]) => actor === 'job' && Number(status) < 300),
    'the audit names the caller',
  );
  t.ok(said.some(([actor, action]) => actor === 'configuration' && action === 'CreateToken'));

  t.match(await run(['token', 'revoke', 'job']), { code: 0 });
  await until(async () => (await run(['servers'], asJob)).code === 1, 'the job token to be refused');
  t.match(await run(['token', 'revoke', 'one-server']), { code: 0 });
  await until(async () => (await statusOf()) === 'unknown', 'the server to be unknown after its token is revoked');
  t.ok(agent.isAlive, 'the agent keeps trying');

  const secrets = [adminToken, jobToken, agentToken].map((file) => readFileSync(file, 'utf8').trim().slice(-43));
  for (const program of [instance, agent]) {
    const log = JSON.stringify(program.log());
    for (const secret of secrets) t.notMatch(log, secret, `no secret in the log of the ${program.name}`);
  }
});
