/**
 * Does what docs/adding-a-noun.md says, in a copy of this project, and uses the noun: over REST and
 * by the command line, on a real instance with a real database.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { carryOut, copyOfProject, readPage, readSteps } from './page-steps.ts';

const FOLDER = 'control/documents/racks';
const OWNER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

/** Without the loaders that tap gives to each process: the compiler does not start under them. */
const OWN_NODE = ['-u', 'NODE_OPTIONS', process.execPath];
const steps = readSteps(readPage('adding-a-noun.md'));

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a copy of the project in which the steps were done passes its checks, and the noun works', async (t) => {
  const copy = copyOfProject(t);
  carryOut(copy, steps);
  const run = (args: readonly string[], env: NodeJS.ProcessEnv = {}) => runIn(t, copy, args, env);
  const succeeds = async (t: Test, args: readonly string[], env: NodeJS.ProcessEnv = {}) => {
    const { code, output } = await run(args, env);
    t.equal(code, 0, `${args.join(' ')}\n${code === 0 ? '' : output}`);
    return output;
  };

  await t.test('types, imports, style, generated pages and its own test', async (t) => {
    await succeeds(t, ['node_modules/typescript/bin/tsc', '-p', '.']);
    await succeeds(t, ['tools/imports/main.ts']);
    const files = [...steps.newFiles, ...steps.additions]
      .map(({ file }) => file)
      .filter((file) => file.endsWith('.ts'));
    await succeeds(t, ['node_modules/@biomejs/biome/bin/biome', 'check', '--vcs-enabled=false', ...files]);
    await succeeds(t, ['tools/docs/main.ts']);
    for (const [file, text] of Object.entries({ 'rest-api.md': '### CreateRack', 'cli.md': 'cnapi rack list' }))
      t.ok(readFileSync(path.join(copy, 'docs', file), 'utf8').includes(text), `docs/${file} has ${text}`);
    await succeeds(t, [`test/${FOLDER}/racks.test.ts`]);
    await succeeds(t, ['test/control/http/metrics-page.test.ts']);
  });

  const url = await startInstance(t, copy);
  const call = async (method: string, place: string, body?: object, headers: Record<string, string> = {}) => {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const response = await fetch(`${url}${place}`, { method, headers: { ...type, ...headers }, ...sent });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return {
      status: response.status,
      etag: response.headers.get('etag') ?? '',
      body: isJson ? JSON.parse(text) : text,
    };
  };
  const cnapi = async (...args: string[]) => (await succeeds(t, ['lib/cli/main.ts', '--url', url, ...args])).trim();
  const rack = (name: string, power = 'redundant') => ({ name, room: 'b1', power, owner: OWNER });

  await t.test('a rack is created, read, changed under its ETag, and deleted', async (t) => {
    const uuid = randomUUID();
    const made = await call('POST', '/racks', { uuid, ...rack('base') });
    t.match(made, { status: 201, body: { uuid, state: 'new', power: 'redundant' }, etag: /^"\w+"$/ });
    t.match(await call('POST', '/racks', { uuid, ...rack('other') }), {
      status: 409,
      body: { code: 'EtagConflict' },
    });
    const refused = await call('POST', '/racks', rack('base', 'steam'));
    t.same([refused.status, refused.body.errors[0].field], [400, 'power']);
    const changed = await call('POST', `/racks/${uuid}`, { state: 'active' }, { 'If-Match': made.etag });
    t.match(changed, { status: 200, body: { state: 'active', name: 'base' } });
    for (const [method, body] of [['POST', { state: 'disabled' }], ['DELETE']] as const)
      t.match(await call(method, `/racks/${uuid}`, body, { 'If-Match': made.etag }), {
        status: 412,
        body: { code: 'EtagConflict' },
      });
    t.match(await call('POST', `/racks/${uuid}`, { state: 'new' }), {
      status: 409,
      body: { code: 'InvalidArgument' },
    });
    t.same((await call('GET', `/racks/${uuid}`)).etag, changed.etag);
    t.equal((await call('DELETE', `/racks/${uuid}`, undefined, { 'If-Match': changed.etag })).status, 204);
    t.match(await call('GET', `/racks/${uuid}`), { status: 404, body: { code: 'ResourceNotFound' } });

    const events = await readEvents(`${url}/events?kind=rack&after=0`, 3);
    t.same(
      events.map(({ time: _, ...event }) => event),
      [
        { uuid, change: 'created', name: 'base', state: 'new' },
        { uuid, change: 'updated', name: 'base', state: 'active' },
        { uuid, change: 'deleted', name: 'base', state: 'active' },
      ],
      'each change is an event',
    );
    t.equal((await call('GET', '/events?kind=picture')).status, 400, 'other kinds are refused');

    const audit = async (query: string) => (await call('GET', `/audit?object=${uuid}&${query}`)).body;
    const records = await until(async () => {
      const found: { action: string; status: number | null }[] = await audit('limit=100');
      return found.length >= 7 && found.every(({ status }) => status !== null) ? found : undefined;
    }, 'the audit records');
    t.same(
      records.map(({ action, status }) => `${action} ${status}`).toSorted(),
      [
        'CreateRack 201',
        'CreateRack 409',
        'DeleteRack 204',
        'DeleteRack 412',
        'UpdateRack 200',
        'UpdateRack 409',
        'UpdateRack 412',
      ],
      'each change and each refusal has a record',
    );
  });

  await t.test('a list is filtered and read page by page', async (t) => {
    for (const [name, power] of [
      ['web-1', 'redundant'],
      ['web-2', 'redundant'],
      ['db', 'redundant'],
      ['web-3', 'single'],
    ] as const)
      t.equal((await call('POST', '/racks', { ...rack(name, power), state: 'active' })).status, 201);
    const names = (body: { racks: { name: string }[] }) => body.racks.map(({ name }) => name).toSorted();
    t.same(names((await call('GET', '/racks?power=redundant&name=web*')).body), ['web-1', 'web-2']);
    t.same(names((await call('GET', `/racks?state=new&owner=${OWNER}`)).body), []);
    t.equal((await call('GET', '/racks?room=b1')).status, 409, 'a field without an index is not a filter');
    const first = (await call('GET', '/racks?limit=3')).body;
    const last = (await call('GET', `/racks?limit=3&after=${first.next}`)).body;
    t.same([first.racks.length, last.racks.length, last.next], [3, 1, undefined]);
    t.same([...names(first), ...names(last)].toSorted(), ['db', 'web-1', 'web-2', 'web-3']);
    t.match((await call('GET', '/metrics')).body, /^cnapi_racks\{state="active"\} 4$/m);
  });

  await t.test('the commands of the page work, and the OpenAPI document has the routes', async (t) => {
    const [created = '', ...others] = steps.commands;
    const uuid = await cnapi(...words(created, ''));
    t.match(uuid, /^[0-9a-f-]{36}$/);
    for (const command of others.filter((one) => !one.startsWith('cnapi events'))) {
      const said = await cnapi(...words(command, uuid));
      if (command.startsWith('cnapi rack list'))
        t.match(said, /^UUID +NAME +ROOM +POWER +STATE\n\S+ +base +b1 +redundant +new$/);
      if (command.startsWith('cnapi audit')) t.ok(said.includes(uuid), 'the audit names the rack');
    }
    t.match(
      await cnapi('events', '--kind', 'rack', '--after', '0', '--limit', '1', '--quiet'),
      /rack +\S+ +created +\{"name":"base"/,
    );
    t.equal(JSON.parse(await cnapi('rack', 'list', '--json')).length, 4, 'the rack of the page was deleted');
    t.match(await cnapi('rack', 'create', '--help'), /name, room, power, state, owner, description/);
    t.equal((await run(['lib/cli/main.ts', '--url', url, 'rack', 'create', 'colour=red'])).code, 2);
    const { paths, components } = (await call('GET', '/openapi.json')).body;
    t.same(Object.keys(paths['/racks/{uuid}']).toSorted(), ['delete', 'get', 'post']);
    t.ok('Rack' in components.schemas);
  });
});

/** The words of a command of the page, without `cnapi`. */
function words(command: string, uuid: string): string[] {
  const [, ...rest] = command.match(/'[^']*'|\S+/g) ?? [];
  return rest.map((word) => word.replaceAll("'", '').replace('UUID', uuid));
}

interface Ran {
  code: number | null;
  output: string;
}

function runIn(t: Test, folder: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ran> {
  const child = spawn('env', [...OWN_NODE, ...args], { cwd: folder, env: { ...process.env, ...env } });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, output })));
}

/** Resolves with the URL of an instance of the copy that is ready. */
async function startInstance(t: Test, copy: string): Promise<string> {
  const { url: databaseUrl } = await freshDatabase(t);
  const env = { ...process.env, CNAPI_DATABASE_URL: databaseUrl, CNAPI_PORT: '0', CNAPI_LOG_LEVEL: 'info' };
  const child = spawn('env', [...OWN_NODE, 'server.ts'], { cwd: copy, env, stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(async () => {
    const ended = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await ended;
  });
  let log = '';
  child.stdout.on('data', (chunk) => (log += chunk));
  return until(() => /"url":"(http[^"]+)".*"msg":"instance: ready"/.exec(log)?.[1], 'the instance to be ready');
}

/** The data of the first `count` events. */
async function readEvents(url: string, count: number): Promise<Record<string, unknown>[]> {
  const leaving = new AbortController();
  const response = await fetch(url, { signal: leaving.signal });
  let text = '';
  try {
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      const data = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
      if (data.length >= count) return data.slice(0, count);
    }
  } finally {
    leaving.abort();
  }
  throw new Error(`the stream ended after ${text}`);
}
