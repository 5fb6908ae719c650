import { once } from 'node:events';
import { appendFile, readFile, writeFile } from 'node:fs/promises';
import { createServer, get } from 'node:https';
import { type AddressInfo, connect as connectPlain, type Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import t, { type Test } from 'tap';
import { Certificates } from '../../../../lib/control/http/listener/certificates.ts';
import { ListenSockets } from '../../../../lib/control/http/listener/listen-sockets.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { type Clock, systemClock } from '../../../../lib/platform/time/clock.ts';
import { Authority, replaceFiles } from '../../../support/certificates.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { until } from '../../../support/until.ts';
import { type ApiOptions, raw, startApi } from '../support.ts';

async function startTls(t: Test, clock: Clock = systemClock, config: ApiOptions['config'] = {}) {
  const authority = await Authority.create(t);
  const files = await authority.issue();
  const logged: Record<string, unknown>[] = [];
  const certificates = new Certificates({ files, clock: systemClock, log: recordingLogger(logged) });
  await certificates.load();
  const api = await startApi(t, { certificates, clock, config });
  const ca = await readFile(authority.caFile);
  const dial = dialer(api.port, ca);
  const serialOf = async () => {
    const socket = await dial();
    t.teardown(() => socket.destroy());
    return { socket, serial: socket.getPeerCertificate().serialNumber };
  };
  return { ...api, authority, files, certificates, certLog: logged, ca, dial, serialOf };
}

interface SocketOptions {
  maxConnections: number;
  handshakesPerSecond?: number;
  clock: Clock;
}

async function openSockets(t: Test, { maxConnections, handshakesPerSecond = 0, clock }: SocketOptions) {
  const authority = await Authority.create(t);
  const logged: Record<string, unknown>[] = [];
  const log = recordingLogger(logged);
  const certificates = new Certificates({ files: await authority.issue(), clock: systemClock, log });
  await certificates.load();
  const http = createServer((request, response) => response.end(request.url));
  const listenSockets = new ListenSockets({
    http,
    host: '127.0.0.1',
    port: 0,
    maxConnections,
    handshakesPerSecond,
    certificates,
    clock,
    log,
  });
  const port = await listenSockets.open();
  t.teardown(() => {
    listenSockets.close();
    listenSockets.cutHandshakes();
    certificates.stop();
    http.closeAllConnections();
  });
  const ca = await readFile(authority.caFile);
  return { port, listenSockets, logged, dial: dialer(port, ca) };
}

function dialer(port: number, ca: Buffer) {
  return async (options: Record<string, unknown> = {}): Promise<TLSSocket> => {
    const socket = connect({ host: '127.0.0.1', port, ca, ...options });
    await once(socket, 'secureConnect');
    return socket;
  };
}

const ask = async (port: number, ca: Buffer, more: { path?: string; headers?: Record<string, string> } = {}) => {
  const { path = '/info', headers = {} } = more;
  const [response] = await once(get({ host: '127.0.0.1', port, ca, path, headers, agent: false }), 'response');
  return { status: response.statusCode as number, text: (await response.toArray()).join('') };
};

const says = async (socket: TLSSocket, path: string) => {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  return String((await once(socket, 'data'))[0]);
};

t.test('REST and the agent link work over TLS on one port and all its listening sockets', async (t) => {
  const { port, ca, url, dial, upgrades } = await startTls(t);
  t.match(url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const answers = await Promise.all(Array.from({ length: 40 }, () => ask(port, ca)));
  t.ok(answers.every(({ status }) => status === 200));
  t.equal((await ask(port, ca, { headers: { origin: url } })).status, 200, 'its own origin is allowed');
  t.equal((await ask(port, ca, { headers: { origin: url.replace('https', 'http') } })).status, 403);
  const server = crypto.randomUUID();
  const socket = await dial();
  t.teardown(() => socket.destroy());
  socket.write(
    `GET /agents/${server}/link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
  );
  t.match(String((await once(socket, 'data'))[0]), /^HTTP\/1.1 101 /);
  t.same(upgrades, [{ serverUuid: server }]);
});

t.test('TLS below 1.2 is refused', async (t) => {
  const { dial } = await startTls(t);
  const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' };
  await t.rejects(dial(old));
  t.equal((await dial({ maxVersion: 'TLSv1.2' })).getProtocol(), 'TLSv1.2');
});

t.test('a client cannot renegotiate, neither with the first certificate nor with a later one', async (t) => {
  const { dial, authority, files, certificates } = await startTls(t);
  const renegotiate = async () => {
    const socket = await dial({ maxVersion: 'TLSv1.2' });
    const refused = once(socket, 'error');
    // The end of the connection may be an error, too.
    socket.on('error', () => undefined);
    const { promise: agreed, resolve } = Promise.withResolvers<string>();
    socket.renegotiate({}, () => resolve('agreed'));
    return Promise.race([refused.then(([error]) => error.code), agreed]);
  };
  t.equal(await renegotiate(), 'ERR_SSL_NO_RENEGOTIATION');
  await replaceFiles(files, await authority.issue());
  await certificates.reload();
  t.equal(await renegotiate(), 'ERR_SSL_NO_RENEGOTIATION');
});

t.test(
  'plain HTTP and invalid bytes on a TLS port are closed, counted and logged at most ten times at once',
  async (t) => {
    const { port, ca, logged, listener } = await startTls(t, { ...systemClock, now: () => 0 });
    for (let each = 0; each < 30; each++) await raw(port, 'GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await raw(port, '\x16\x03\x01\xff\xff'.repeat(1000));
    await until(() => listener.failedHandshakes === 31, 'each to be counted');
    const lines = logged.filter(({ msg }) => msg === 'tls: handshake failed');
    t.equal(lines.length, 10);
    t.match(lines[0], { level: 'warn', source: '127.0.0.1', reason: /plain HTTP was spoken; the caller wants https/ });
    t.equal((await ask(port, ca)).status, 200);
  },
);

t.test('an unfinished handshake is closed after its timeout, even if bytes trickle in', async (t) => {
  const clock = new ManualClock();
  const { port, listenSockets } = await openSockets(t, { maxConnections: 10, clock });
  const [silent, trickling] = [1, 2].map(() => connectPlain(port, '127.0.0.1').on('error', () => undefined));
  const ended = [silent, trickling].map((socket) => once(socket as Socket, 'close'));
  await until(() => listenSockets.handshakes === 2, 'both to be counted');
  for (let each = 0; each < 9; each++) {
    trickling?.write(Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0]).subarray(each, each + 1));
    await clock.advance(1000);
  }
  t.equal(listenSockets.handshakes, 2);
  await clock.advance(1000);
  await Promise.all(ended);
  await until(() => listenSockets.handshakes === 0, 'both to be removed');
  t.equal(listenSockets.failedHandshakes, 2);
  const gone = connectPlain(port, '127.0.0.1').on('error', () => undefined);
  await until(() => listenSockets.handshakes === 1, 'another handshake');
  gone.destroy();
  await until(() => listenSockets.handshakes === 0, 'the closed one to be removed');
  t.equal(listenSockets.failedHandshakes, 2, 'a caller that leaves is not a failure');
});

t.test('one address may begin a limited number of handshakes; further connections are closed', async (t) => {
  const clock = new ManualClock();
  const { listenSockets, logged, dial } = await openSockets(t, { maxConnections: 100, handshakesPerSecond: 2, clock });
  const passes = async (options = {}) => (await dial(options)).destroy();
  for (let each = 0; each < 10; each++) await passes();
  for (let each = 0; each < 3; each++) await t.rejects(dial(), { code: 'ECONNRESET' });
  t.equal(listenSockets.limitedHandshakes, 3);
  t.equal(listenSockets.failedHandshakes, 0);
  await passes({ localAddress: '127.0.0.2' });
  await clock.advance(500);
  await passes();
  await t.rejects(dial(), { code: 'ECONNRESET' });
  const lines = logged.filter(({ msg }) => /too many handshakes/.test(String(msg)));
  t.equal(lines.length, 1);
  t.match(lines[0], { level: 'warn', source: '127.0.0.1', limited: 1 });
});

t.test('with open access, handshakes are not limited', async (t) => {
  const { port, ca, listener } = await startTls(t, systemClock, { access: 'open', handshakesPerSecond: 1 });
  for (let each = 0; each < 10; each++) t.equal((await ask(port, ca)).status, 200);
  t.equal(listener.limitedHandshakes, 0);
});

t.test('handshakes count as connections', async (t) => {
  const { port, listenSockets, dial } = await openSockets(t, { maxConnections: 20, clock: systemClock });
  const silent = Array.from({ length: 20 }, () => connectPlain(port, '127.0.0.1').on('error', () => undefined));
  t.teardown(() => silent.forEach((socket) => void socket.destroy()));
  await until(() => listenSockets.handshakes === 20, 'all of them to be counted');
  await t.rejects(dial());
  for (const socket of silent.splice(0, 5)) socket.destroy();
  const late = await until(() => dial().catch(() => undefined), 'a later connection to be accepted');
  t.match(await says(late, '/late'), /200 OK/);
  late.destroy();
});

t.test('when the port is taken, the certificate files are no longer watched', async (t) => {
  const squatter = createServer().listen(0, '127.0.0.1');
  await once(squatter, 'listening');
  t.teardown(() => squatter.close());
  const authority = await Authority.create(t);
  const clock = new ManualClock();
  const periods: number[] = [];
  const counting: Clock = {
    ...systemClock,
    every(ms) {
      periods.push(ms);
      return { cancel: () => void periods.pop() };
    },
  };
  const log = silentLogger;
  const certificates = new Certificates({ files: await authority.issue(), clock: counting, log });
  await certificates.load();
  const { port } = squatter.address() as AddressInfo;
  const listenSockets = new ListenSockets({
    http: createServer(),
    host: '127.0.0.1',
    port,
    maxConnections: 1,
    handshakesPerSecond: 0,
    certificates,
    clock,
    log,
  });
  await t.rejects(listenSockets.open(), { code: 'EADDRINUSE' });
  t.same(periods, []);
});

t.test('new connections get a new certificate; open ones continue', async (t) => {
  const { files, authority, serialOf, certificates, certLog } = await startTls(t);
  const before = await serialOf();
  t.equal(before.serial, files.serial);
  const next = await authority.issue({ untilMs: Date.now() + 3 * 86_400_000 });
  await replaceFiles(files, next);
  await until(async () => (await serialOf()).serial === next.serial, 'the new certificate');
  t.match(await says(before.socket, '/ping'), /200 OK/, 'the open connection is served');
  t.match(
    certLog.find(({ msg }) => /new connections get this certificate/.test(String(msg))),
    { serial: next.serial },
  );
  t.ok(certificates.expiresInSeconds > 2.9 * 86_400 && certificates.expiresInSeconds <= 3 * 86_400);
  t.ok(certLog.some(({ level, msg }) => level === 'warn' && /expires soon/.test(String(msg))));
});

t.test('an unusable new certificate is logged once, and the old one stays in use', async (t) => {
  const { files, authority, serialOf, certificates, certLog } = await startTls(t);
  const kept = { certFile: await readFile(files.certFile), keyFile: await readFile(files.keyFile) };
  const complaints = () => certLog.filter(({ level }) => level === 'error').map(({ reason }) => String(reason));
  const other = await authority.issue();
  const expired = await authority.issue({ fromMs: Date.now() - 9e7, untilMs: Date.now() - 1000 });
  await replaceFiles(files, { certFile: other.certFile });
  await until(() => complaints().length === 1, 'the mismatch to be logged');
  t.match(complaints()[0], /^tlsKeyFile .* is not the key of the certificate in tlsCertFile /);
  t.equal((await serialOf()).serial, files.serial);
  await writeFile(files.certFile, kept.certFile.subarray(0, 200));
  await until(() => complaints().length === 2, 'the torn file to be logged');
  t.match(complaints()[1], /^tlsCertFile .* does not hold a certificate in PEM/);
  await replaceFiles(files, expired);
  await certificates.reload();
  t.match(complaints().at(-1), /^tlsCertFile .* has expired/);
  t.equal((await serialOf()).serial, files.serial);
  await writeFile(files.keyFile, kept.keyFile);
  await writeFile(files.certFile, kept.certFile);
  await appendFile(files.certFile, '\n');
  await certificates.reload();
  t.equal((await serialOf()).serial, files.serial, 'a usable certificate is loaded again');
});

t.test('an unusable certificate fails the start and names the configuration key and file', async (t) => {
  const authority = await Authority.create(t);
  const good = await authority.issue();
  const other = await authority.issue();
  const expired = await authority.issue({ fromMs: Date.now() - 9e7, untilMs: Date.now() - 1000 });
  const early = await authority.issue({ fromMs: Date.now() + 9e7 });
  const load = (files: { certFile: string; keyFile: string }) =>
    new Certificates({ files, clock: systemClock, log: silentLogger }).load();
  await t.rejects(load({ ...good, keyFile: '/nowhere/key.pem' }), {
    message: /^tlsKeyFile \/nowhere\/key.pem cannot be read: ENOENT/,
  });
  await t.rejects(load({ ...good, certFile: good.keyFile }), {
    message: /^tlsCertFile .* does not hold a certificate/,
  });
  await t.rejects(load({ ...good, keyFile: good.certFile }), { message: /^tlsKeyFile .* does not hold a private key/ });
  await t.rejects(load({ ...good, keyFile: other.keyFile }), { message: /is not the key of the certificate/ });
  await t.rejects(load(expired), { message: /^tlsCertFile .* has expired: it was valid until / });
  await t.rejects(load(early), { message: /^tlsCertFile .* is not valid before / });
  await load(good);
});
