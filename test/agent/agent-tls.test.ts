/** A real agent and real instances over TLS, from the command line to the command's output. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { freshZone } from '../support/apps.ts';
import { Authority, askOverTls, replaceFiles } from '../support/certificates.ts';
import { until } from '../support/until.ts';

const MAIN = fileURLToPath(new URL('../../lib/agent/main.ts', import.meta.url));

async function startAgent(t: Test, ...args: string[]): Promise<string> {
  const data = await mkdtemp(join(tmpdir(), 'agent-tls-'));
  const uuid = randomUUID();
  const child = spawn(process.execPath, [MAIN, '--data', data, '--uuid', uuid, ...args], { stdio: 'ignore' });
  t.teardown(async () => {
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    await exit;
    await rm(data, { recursive: true, force: true });
  });
  return uuid;
}

async function serialAt(url: string, caFile: string): Promise<string> {
  const { hostname: host, port } = new URL(url);
  const socket: TLSSocket = connect({ host, port: Number(port), ca: await readFile(caFile) });
  await once(socket, 'secureConnect');
  const serial = socket.getPeerCertificate().serialNumber;
  socket.destroy();
  return serial;
}

t.test('an agent runs commands over wss, survives a certificate change, and moves over wss', async (t) => {
  const authority = await Authority.create(t);
  const { caFile } = authority;
  const files = await authority.issue();
  const tls = { tlsCertFile: files.certFile, tlsKeyFile: files.keyFile };
  const zone = await freshZone(t);
  const one = await zone.startApp(tls);
  const server = await startAgent(t, '--url', one.url, '--ca', caFile);
  const at = (url: string, path: string) => askOverTls(caFile, `${url}${path}`);
  const run = async (url: string, script: string) =>
    askOverTls(caFile, `${url}/servers/${server}/execute?json=true`, { method: 'POST', body: { script } });
  await until(
    async () => (await at(one.url, `/servers/${server}`)).body?.status === 'running',
    'the server to be running',
  );
  t.match(await run(one.url, 'echo over TLS'), { status: 200, body: { stdout: 'over TLS\n' } });
  const epoch = async () => (await at(one.url, `/servers/${server}/status-history`)).body[0].epoch;
  const before = await epoch();

  const next = await authority.issue();
  await replaceFiles(files, next);
  await one.app.reload();
  t.equal(await serialAt(one.url, caFile), next.serial, 'a new connection sees the new certificate');
  t.match(await run(one.url, 'echo still there'), { status: 200, body: { stdout: 'still there\n' } });
  t.equal(await epoch(), before, 'the session is unchanged');
  const { text } = await at(one.url, '/metrics');
  const seconds = Number(/^cnapi_tls_certificate_expires_seconds (\S+)$/m.exec(text)?.[1]);
  t.ok(seconds > 6.9 * 86_400 && seconds <= 7 * 86_400, 'the metric shows when the certificate expires');

  const two = await zone.startApp(tls);
  const { body: instances } = await at(two.url, '/instances');
  t.same(instances.map(({ url }: { url: string }) => url).sort(), [one.url, two.url].sort());
  t.match(one.url, /^https:/);
  one.app.drain('test');
  await one.app.stopped;
  t.match(await run(two.url, 'echo moved'), { status: 200, body: { stdout: 'moved\n' } });
});
