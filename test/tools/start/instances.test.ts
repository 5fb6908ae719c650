/**
 * The instances of `npm start`, replaced by small programs that leave, or do not, as a test wants.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { NameServer } from '../../../lib/platform/dns/name-server.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { Children } from '../../../tools/start/children.ts';
import { Instances } from '../../../tools/start/instances.ts';
import { rememberedUrls } from '../../../tools/start/persisted-settings.ts';
import { serviceName } from '../../../tools/start/programs.ts';
import { answersReady } from '../../../tools/start/readiness.ts';
import { WatchdogClient } from '../../../tools/start/watchdog-client.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { freePorts, type Teardown } from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

/** A program that is ready and leaves on SIGTERM. */
const orderly = (port: number, status = 200) => `
  require('node:http').createServer((q, s) => { s.statusCode = ${status}; s.end(); }).listen(${port}, '127.0.0.1');
  process.on('SIGTERM', () => process.exit(0));`;

const deaf = (port: number) => `${orderly(port)} process.removeAllListeners('SIGTERM').on('SIGTERM', () => undefined);`;

const failing = () => `console.error('the disk is on fire'); process.exit(1);`;

/**
 * Instances that run the program set for their port, by default an orderly one, and a name server
 * that names all of them and one foreign instance.
 */
async function ofPrograms(t: Teardown, { startLimitMs = 60_000, ...limits } = {} as { [limit: string]: number }) {
  const data = mkdtempSync(path.join(os.tmpdir(), 'cnapi-instances-'));
  mkdirSync(path.join(data, 'config'));
  mkdirSync(path.join(data, 'log'));
  const firstPort = await freePorts(8);
  const stopping = new AbortController();
  const clock = systemClock;
  const watch = new WatchdogClient(path.join(data, 'config', 'processes.json'), clock);
  const said: string[] = [];
  const say = (text: string) => said.push(text);
  const children = new Children({ data, watch, clock, stopping: stopping.signal, say, startLimitMs });
  const names = new NameServer({
    host: '127.0.0.1',
    port: firstPort + 1,
    zone: { datacenter: 'local', domain: 'cnapi.internal' },
    instances: () => [9, ...ports()].map((port) => ({ uuid: `${port}`, host: '127.0.0.1', port })),
    clock,
    random: systemRandom,
    log: silentLogger,
  });
  const told: number[][] = [];
  const uuids = new Map<number, string>();
  const fileOf = (port: number) => path.join(data, `${port}.cjs`);
  /** Takes effect at the next start. */
  const set = (port: number, program: string) => writeFileSync(fileOf(port), program);
  const ports = () => rememberedUrls(data).map((url) => Number(new URL(url).port));
  const instances = new Instances({
    data,
    children,
    firstPort,
    namesPort: firstPort + 1,
    serviceName,
    commandFor({ port, cnapiUuid }) {
      uuids.set(port, cnapiUuid);
      if (!existsSync(fileOf(port))) set(port, orderly(port));
      return { file: process.execPath, args: [fileOf(port)] };
    },
    headers: () => ({}),
    onUrls: (urls) => told.push(urls.map((url) => Number(new URL(url).port) - firstPort)),
    say,
    clock,
    random: systemRandom,
    stopping: stopping.signal,
    limits,
  });
  await names.start();
  watch.start();
  t.teardown(async () => {
    stopping.abort();
    await children.stop();
    await watch.close();
    children.closeLogs();
    await names.stop();
    rmSync(data, { recursive: true, force: true });
  });
  return {
    instances,
    names,
    set,
    firstPort,
    said,
    say,
    ports: () => ports().map((port) => port - firstPort),
    told,
    uuids,
    watch,
  };
}

t.test('scaling up takes the next free ports, and scaling down removes the last instances', async (t) => {
  const { instances, firstPort, said, say, ports } = await ofPrograms(t);
  const taken = createServer().listen(firstPort + 3, '127.0.0.1');
  t.teardown(() => taken.close());
  await instances.start(1);
  const answer = await instances.scale(3, say);
  t.strictSame(ports(), [0, 2, 4], 'ports of the name server and of another program are skipped');
  t.match(answer, `3 instances serving: http://127.0.0.1:${firstPort} `);
  await instances.scale(2, say);
  t.strictSame(ports(), [0, 2]);
  t.notOk(await answersReady(`http://127.0.0.1:${firstPort + 4}`));
  t.notMatch(said.join('\n'), /again/, 'it is not restarted');
  t.match(await instances.scale(1, say), 'one instance serving');
});

t.test('an instance that does not leave in time is killed and stays down', async (t) => {
  const { instances, set, firstPort, said, say, ports, watch } = await ofPrograms(t, { leaveMs: 300 });
  set(firstPort + 2, deaf(firstPort + 2));
  await instances.start(1);
  await instances.scale(2, say);
  t.equal(watch.endings.length, 2);
  await instances.scale(1, say);
  t.match(said.join('\n'), `instance-${firstPort + 2} does not leave within 0.3 s: it is ended`);
  await until(() => watch.endings.length === 1, 'its end to be noticed');
  t.strictSame(ports(), [0]);
});

t.test('an instance that fails to start is given up with its last output; others are kept', async (t) => {
  const { instances, set, firstPort, say, ports, uuids, watch } = await ofPrograms(t);
  await instances.start(1);
  set(firstPort + 2, failing());
  await t.rejects(instances.scale(3, say), {
    message: /instance-\d+ ended while it was starting(.|\n)*the disk is on fire\n2 instances running now/,
  });
  await until(() => watch.endings.length === 2, 'its end to be noticed');
  t.strictSame(ports(), [0, 3]);
  set(firstPort + 2, orderly(firstPort + 2));
  await instances.scale(3, say);
  t.strictSame(ports(), [0, 3, 2], 'another attempt takes the free port');
  t.equal(new Set(uuids.values()).size, 3, 'a new uuid');
});

t.test('an instance that runs but never gets ready is removed', async (t) => {
  const { instances, set, firstPort, say, ports, watch } = await ofPrograms(t, { startLimitMs: 15_000 });
  set(firstPort + 2, orderly(firstPort + 2, 503));
  await instances.start(1);
  await t.rejects(instances.scale(2, say), { message: /did not come up in 15 s/ });
  await until(() => watch.endings.length === 1, 'its end to be noticed');
  t.strictSame(ports(), [0]);
});

t.test('scaling fails when the name server does not follow, and skips its port all the same', async (t) => {
  const { instances, names, say, ports } = await ofPrograms(t, { namesMs: 2_000 });
  await instances.start(1);
  await names.stop();
  await t.rejects(instances.scale(2, say), { message: 'the name server does not name 2 instances' });
  t.strictSame(ports(), [0, 2]);
});

t.test('scaling down is refused while a remaining instance is not ready', async (t) => {
  const { instances, set, firstPort, say, ports, watch } = await ofPrograms(t, { returnMs: 300 });
  await instances.start(1);
  await instances.scale(2, say);
  set(firstPort, orderly(firstPort, 503));
  const pid = watch.endings.find(({ name }) => name === `instance-${firstPort}`)?.pid;
  process.kill(pid ?? 0, 'SIGKILL');
  await until(async () => !(await answersReady(`http://127.0.0.1:${firstPort}`)), 'it to be away');
  await t.rejects(instances.scale(1, say), { message: `http://127.0.0.1:${firstPort} is not ready` });
  t.strictSame(ports(), [0, 2]);
  t.ok(await answersReady(`http://127.0.0.1:${firstPort + 2}`));
});

t.test('a rolling restart replaces each process, one at a time', async (t) => {
  const { instances, said, say, watch, firstPort } = await ofPrograms(t);
  await instances.start(1);
  await instances.scale(3, say);
  const before = watch.endings.map(({ pid }) => pid);
  said.length = 0;
  t.match(await instances.restartEach(say), '3 instances serving');
  t.equal(new Set([...before, ...watch.endings.map(({ pid }) => pid)]).size, 6, 'six processes in total');
  const order = said.filter((text) => /has left after|is ready again/.test(text)).map((text) => text.split(' ', 2)[0]);
  t.strictSame(
    order,
    [0, 0, 2, 2, 3, 3].map((each) => `instance-${firstPort + each}`),
  );
});

t.test('a rolling restart kills an instance that does not leave and waits for its return', async (t) => {
  const { instances, set, firstPort, said, say, watch } = await ofPrograms(t, { leaveMs: 300 });
  set(firstPort, deaf(firstPort));
  await instances.start(1);
  const [before] = watch.endings;
  t.match(await instances.restartEach(say), 'one instance serving');
  t.match(said[0], 'there is only one instance: nobody answers while it restarts');
  t.match(said.join('\n'), `instance-${firstPort} does not leave within 0.3 s: it is ended`);
  t.match(said.at(-1), `instance-${firstPort} is ready again`);
  t.not(watch.endings[0]?.pid, before?.pid);
});

t.test('a rolling restart stops at an instance that does not come up again', async (t) => {
  const { instances, set, say, firstPort, watch } = await ofPrograms(t, { returnMs: 10_000 });
  await instances.start(1);
  await instances.scale(2, say);
  const second = watch.endings.find(({ name }) => name === `instance-${firstPort + 2}`);
  set(firstPort, failing());
  await t.rejects(instances.restartEach(say), {
    message: /instance-\d+ does not come up again; its last words:\n(.|\n)*the disk is on fire/,
  });
  t.match(
    watch.endings.find(({ name }) => name === second?.name),
    second,
    'the next instance was not touched',
  );
});

t.test('the return of an instance that dies is reported', async (t) => {
  const { instances, firstPort, said, watch } = await ofPrograms(t);
  await instances.start(1);
  for (const { pid } of watch.endings) process.kill(pid, 'SIGKILL');
  const report = await until(() => said.find((text) => /ready again/.test(text)), 'the report');
  t.match(report, new RegExp(`^instance-${firstPort} is ready again after \\d+\\.\\d s$`));
});

t.test('that an instance does not get ready again is reported', async (t) => {
  const { instances, set, firstPort, said, watch } = await ofPrograms(t, { returnMs: 500 });
  await instances.start(1);
  set(firstPort, orderly(firstPort, 503));
  for (const { pid } of watch.endings) process.kill(pid, 'SIGKILL');
  await until(() => said.includes(`instance-${firstPort} is not ready after 0.5 s`), 'the complaint');
});

t.test('only one operation runs at a time', async (t) => {
  const { instances, say } = await ofPrograms(t);
  await instances.start(1);
  const first = instances.scale(2, say);
  await t.rejects(instances.scale(3, say), { message: 'scaling to 2 is going on; try again when it is done' });
  await t.rejects(instances.restartEach(say), { message: /going on/ });
  await first;
  t.match(await instances.scale(2, say), '2 instances serving', 'scaling to the present number does nothing');
});
