/**
 * `install-agent` for servers that speak Ur: a real broker, a Ur that runs scripts, and the real
 * agent.
 */
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import path from 'node:path';
import t, { type Test } from 'tap';
import { lockHolder } from '../../../lib/agent/directory-lock.ts';
import type { Server } from '../../../lib/protocol/api/servers.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { buildPackage } from '../../../tools/agent-package/build-package.ts';
import { packageShop } from '../../support/agent-packages.ts';
import { freshZone, nopTask, type TestApp } from '../../support/apps.ts';
import { freePort } from '../../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { noRabbitmq, startRabbitmq } from '../../support/rabbitmq.ts';
import { until } from '../../support/until.ts';
import { TestUr } from '../../support/ur.ts';
import { brokerState, rosterRowOf, untilUrReason } from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const LAUNCHER = 'lib/agent/launcher/main.ts';
/** A shell that read it would create the file `seen`. */
const HOSTILE = `it's "$(touch seen)" \`touch seen\`; touch seen #`;

interface Ended {
  outcome: string;
  result?: Record<string, unknown>;
  error?: { code: string; message: string };
}

t.test('a server that speaks Ur gets an agent', { skip: noRabbitmq }, async (t) => {
  const [broker, shop, zone] = await Promise.all([startRabbitmq(t), packageShop(t), freshZone(t)]);
  const port = await freePort();
  const root = path.join(shop.data, HOSTILE);
  await mkdir(root);
  t.teardown(() => killAgents(root));
  const settings = { key: shop.key, options: { url: [`http://127.0.0.1:${port}`], packagePath: [shop.folder] } };
  const start = async (directory: string, more: object = {}) => {
    const urAgent = { ...settings, node: process.execPath, directory: path.join(root, directory), ...more };
    const app = await zone.startApp({ amqpUrl: broker.url, port, urAgent });
    await until(async () => (await brokerState(app)) === 'online', 'the broker');
    return app;
  };
  const newServer = async (t: Test): Promise<TestUr> => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    return ur;
  };

  let app = await start('agent');

  await t.test('what is wrong with a package is the reason of the failure, and nothing is started', async (t) => {
    const ur = await newServer(t);
    const install = (package_file: string) => installAgent(app, ur, { package_file });
    const files = [{ path: LAUNCHER, contents: Buffer.from('process.exit(7);\n') }];
    const about = { name: 'cn-agent', version: '9.0.0', files };
    const add = async (name: string, bytes: Buffer) => {
      await writeFile(path.join(shop.folder, name), bytes);
      return path.join(shop.folder, name);
    };
    const other = generateKeyPairSync('ed25519').privateKey;
    const signed = buildPackage({ ...about, privateKey: shop.privateKey });
    const altered = Buffer.from(signed);
    const at = altered.lastIndexOf(Buffer.from('files.tar.gz')) + 512 + 40;
    altered[at] = (altered[at] ?? 0) ^ 1;
    const code = 'AgentNotInstalled';
    for (const [file, reason] of [
      [await add('other.tar', buildPackage({ ...about, privateKey: other })), /not signed by the key/],
      [await add('altered.tar', altered), /not those that were signed/],
      [await add('text.tar', Buffer.from('text')), /not a package/],
      [await add('net.tar', buildPackage({ ...about, name: 'net-agent', privateKey: shop.privateKey })), /net-agent/],
      [
        await add('new.tar', buildPackage({ ...about, node: '99.0.0', privateKey: shop.privateKey })),
        /needs Node 99\.0\.0/,
      ],
      [await add('exits.tar', signed), /exited with code 7/],
      ['/nowhere.tar', /ENOENT/],
    ] as const)
      t.match(await install(file), { outcome: 'failure', error: { code, message: reason } }, file);
    t.match(await install(''), { error: { code: 'PackageNotGiven' } });
    const named = await installAgent(app, ur, { package_file: '/a', package_name: 'net-agent' });
    t.match(named, { error: { code: 'NeedsAgent', message: /net-agent/ } });
    t.equal((await rosterRowOf(zone, ur.uuid))?.reason, 'ur-sysinfo');
  });

  await t.test('from a web server, and the server then has a status, a sysinfo and tasks by its agent', async (t) => {
    const ur = await newServer(t);
    const bytes = await readFile(await shop.addAgent('9.1.0'));
    const web = createServer((request, response) => {
      const isThere = request.url === '/a.tar?token=secret';
      response.statusCode = isThere ? 200 : 404;
      response.end(isThere ? bytes : undefined);
    });
    t.teardown(() => web.close());
    const url = await new Promise<string>((resolve) => {
      web.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${(web.address() as { port: number }).port}`));
    });
    const missing = await installAgent(app, ur, { package_file: `${url}/b.tar?token=secret` });
    t.match(missing, { error: { code: 'AgentNotInstalled', message: /HTTP status 404/ } });
    const end = await installAgent(app, ur, { package_file: `${url}/a.tar?token=secret` });
    t.match(end, { outcome: 'complete', result: { version: '9.1.0', changed: true } });
    t.match(await rosterRowOf(zone, ur.uuid), { status: 'running', reason: 'connected' });
    await until(
      async () => (await app.get<Server>(`/servers/${ur.uuid}`)).body.sysinfo?.['CN Agent Version'] === '9.1.0',
      'the sysinfo of the agent',
    );
    const metrics = await (await fetch(`${app.url}/metrics`)).text();
    t.match(metrics, /^cnapi_link_agents_by_version\{.*version="9\.1\.0".*\} 1$/m);
    const { id } = await nopTask(app, ur.uuid);
    t.match((await app.get<Task>(`/tasks/${id}/wait`)).body, { status: 'complete' });
    const again = await installAgent(app, ur, { package_file: await shop.addAgent('9.1.0') });
    t.match(again, { outcome: 'complete', result: { version: '9.1.0', changed: false } }, 'the agent trusts the key');
  });

  await app.stop();
  app = await start('silent', { withinMs: 500 });

  await t.test('an agent that does not connect is a failure with the end of its log', async (t) => {
    const ur = await newServer(t);
    const code = `import { writeFileSync } from 'node:fs';
      writeFileSync(process.argv.at(-1) + '.pid', String(process.pid));
      console.log('no such host');
      setInterval(() => {}, 1000);\n`;
    const file = await shop.add({ version: '9.2.0', files: [{ path: LAUNCHER, contents: Buffer.from(code) }] });
    const hostile = path.join(root, 'package.tar');
    await copyFile(file, hostile);
    const end = await installAgent(app, ur, { package_file: hostile });
    t.match(end, { error: { code: 'AgentNotConnected', message: /within 500 ms.*no such host/s } });
  });

  await app.stop();
  const closed = [`http://127.0.0.1:${await freePort()}`];
  app = await start('again', { withinMs: 500, options: { ...settings.options, url: closed } });

  await t.test('an installation with a wrong address can be repeated with the right one', async (t) => {
    const ur = await newServer(t);
    const order = { package_file: await shop.addAgent('9.3.0') };
    t.match(await installAgent(app, ur, order), { error: { code: 'AgentNotConnected' } });
    const locked = path.join(root, 'again/data/agent-versions');
    const first = await until(() => lockHolder(locked).catch(() => undefined), 'the first launcher');
    await app.stop();
    app = await start('again');
    const end = await installAgent(app, ur, order);
    t.match(end, { outcome: 'complete', result: { version: '9.3.0', changed: true } });
    const second = await lockHolder(locked);
    t.ok(second !== undefined && second !== first, 'one launcher is left, which is another one');
  });

  await app.stop();
  const started = path.join(root, 'started');
  app = await start('by-command', { node: HOSTILE });

  await t.test('the script needs a Node', async (t) => {
    const end = await installAgent(app, await newServer(t), { package_file: '/a.tar' });
    t.match(end, { error: { code: 'AgentNotInstalled', message: `there is no ${HOSTILE};` } });
  });

  await app.stop();
  app = await start('by-command', { withinMs: 1, start: ['touch', started] });

  await t.test('an agent is started by the command of the configuration', async (t) => {
    const ur = await newServer(t);
    const end = await installAgent(app, ur, { package_file: path.join(root, 'package.tar') });
    t.match(end, { error: { code: 'AgentNotConnected' } });
    t.ok(existsSync(started));
    t.ok(existsSync(path.join(root, 'by-command', 'start')), 'the program for the service manager');
  });

  t.notOk(existsSync('seen') || readdirSync(root).includes('seen'), 'no shell has read a value');
  await app.stop();
  app = await zone.startApp({ amqpUrl: broker.url });
  await until(async () => (await brokerState(app)) === 'online', 'the broker');

  await t.test('without its configuration an instance says that it cannot install an agent', async (t) => {
    const ur = await newServer(t);
    const end = await installAgent(app, ur, { package_file: '/a.tar' });
    t.match(end, { error: { code: 'NeedsAgent', message: /urAgent/ } });
    t.same(ur.orders, []);
  });
});

/** The end of the task. */
async function installAgent(app: TestApp, { uuid }: TestUr, body: Record<string, unknown>): Promise<Ended> {
  const { body: accepted } = await app.post<{ id: string }>(`/servers/${uuid}/install-agent`, body);
  const { body: task } = await app.get<Task>(`/tasks/${accepted.id}/wait`);
  const event = task.history?.find(({ name }) => name === (task.status === 'failure' ? 'error' : 'finish'))?.event;
  return task.status === 'failure'
    ? { outcome: task.status, ...(event as Pick<Ended, 'error'>) }
    : { outcome: task.status, result: { ...event } };
}

/**
 * Kills the agents that were started below this directory, with their launchers, and the program in
 * place of one.
 */
async function killAgents(root: string): Promise<void> {
  const launchers = ['agent', 'again'].map((name) =>
    lockHolder(path.join(root, name, 'data/agent-versions')).catch(() => undefined),
  );
  const silent = Number(await readFile(path.join(root, 'silent/data.pid'), 'utf8').catch(() => ''));
  for (const pid of [...(await Promise.all(launchers)), silent])
    if (pid !== undefined && pid > 0) process.kill(-pid, 'SIGKILL');
}
