/** From where packages come: files and real HTTP servers, which cut, lie and redirect. */
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { openPackages, packageFiles, packageShop } from '../../support/agent-packages.ts';
import { imageServer } from '../../support/image-server.ts';

const FILES = [{ path: 'lib/a', contents: Buffer.alloc(5_000, 'a') }];
const INSTALLED = ['files/probe/1.0.0/lib/a', 'records/probe.json'];

async function prepare(t: Test) {
  const shop = await packageShop(t);
  const file = await shop.add({ name: 'probe', version: '1.0.0', files: FILES });
  const body = await readFile(file);
  const server = await imageServer(t, { body });
  const packages = await openPackages(t, shop, { urls: [server.url] });
  return { shop, file, body, server, packages };
}

t.test('a package comes from an allowed URL, and from an allowed file by its path or its URL', async (t) => {
  const { shop, file, server, packages } = await prepare(t);
  const progress: [number, number | undefined][] = [];
  const onProgress = (bytes: number, total: number | undefined) => progress.push([bytes, total]);
  t.match(await packages.install(`${server.url}?token=1`, { onProgress }), { version: '1.0.0', changed: true });
  const { length } = server.served.body;
  t.same([server.asked, progress.at(-1)], [['whole'], [length, length]]);
  await packages.uninstall('probe');
  t.match(await packages.install(file), { changed: true });
  t.match(await packages.install(pathToFileURL(file).href), { changed: false });
  t.same(await packageFiles(shop), INSTALLED, 'what arrived is not kept beside the files');
});

t.test('what the configuration does not allow is refused, and no server is asked', async (t) => {
  const { shop, server, packages } = await prepare(t);
  const other = await imageServer(t, server.served);
  await mkdir(join(shop.data, 'secret'));
  await writeFile(join(shop.data, 'secret/a.tar'), server.served.body);
  await symlink(join(shop.data, 'secret/a.tar'), join(shop.folder, 'link.tar'));
  const notAllowed = (message: RegExp) => ({ code: 'PackageSourceNotAllowed', message });
  const rows: [name: string, source: string, error: { code: string; message: RegExp }][] = [
    ['another port', other.url, notAllowed(/^package_file: http:.* is not allowed .* add --package-url$/)],
    ['another path', `${server.url}-more/a.tar`, notAllowed(/with this path; .* add --package-url$/)],
    ['a path upwards', `${server.url}/../../a.tar`, notAllowed(/with this path/)],
    ['an encoded path upwards', `${server.url}/%2e%2e%2fa.tar`, notAllowed(/with this path/)],
    ['a password', server.url.replace('//', '//user:word@'), notAllowed(/^package_file: it holds a user or a pass/)],
    ['another scheme', 'ftp://127.0.0.1/a.tar', notAllowed(/^package_file: ftp: cannot be a source/)],
    ['no URL', 'a.tar', notAllowed(/^package_file: not a URL/)],
    ['a file elsewhere', '/etc/passwd', notAllowed(/^package_file: this file is not allowed .* add --package-path$/)],
    ['no file elsewhere', '/nowhere/a.tar', notAllowed(/^package_file: this file is not allowed/)],
    ['a file of another host', 'file://example.com/a.tar', notAllowed(/^package_file: it names no file/)],
    ['a path that leaves its directory', `${shop.folder}/../data/secret/a.tar`, notAllowed(/this file is not allowed/)],
    ['a link that leaves its directory', join(shop.folder, 'link.tar'), notAllowed(/this file is not allowed/)],
    [
      'no file',
      join(shop.folder, 'absent.tar'),
      { code: 'PackageSourceFailed', message: /^package_file: the file cannot be read \(ENOENT/ },
    ],
    ['the directory', `${shop.folder}/.`, notAllowed(/^package_file: this file is not allowed/)],
  ];
  for (const [name, source, error] of rows) await t.rejects(packages.install(source), error, name);
  t.same([server.asked, other.asked, await packageFiles(shop)], [[], [], []]);
});

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const redirect =
  (to: string): Answer =>
  (_request, response) =>
    response.writeHead(302, { location: to }).end();

t.test('a redirect is followed only to what is allowed', async (t) => {
  const { shop, server, packages } = await prepare(t);
  const other = await imageServer(t, { body: server.served.body });
  server.served.answer = redirect(other.url);
  await t.rejects(packages.install(server.url), {
    code: 'PackageSourceNotAllowed',
    message: `package_file: ${new URL(other.url).origin} is not allowed by this agent with this path; choose an allowed one, or add --package-url`,
  });
  t.same([other.asked, await packageFiles(shop)], [[], []], 'the other server is not asked');
  server.served.answer = redirect('file:///etc/passwd');
  await t.rejects(packages.install(server.url), { code: 'PackageSourceNotAllowed' });
  server.served.answer = redirect(server.url);
  await t.rejects(packages.install(server.url), { code: 'PackageSourceFailed', message: /more than 5 times/ });
  const both = await openPackages(t, shop, { urls: [server.url, other.url] });
  server.served.answer = redirect(other.url);
  t.match(await both.install(server.url), { version: '1.0.0', changed: true });
});

const wrongAnswers: Record<string, { answer: Answer; error: { code: string; message: RegExp } }> = {
  'has no such file': {
    answer: (_request, response) => response.writeHead(404).end(),
    error: { code: 'PackageSourceFailed', message: /^http:.*\/images\/one: it answered 404$/ },
  },
  'announces more than a package may have': {
    answer: (_request, response) => response.writeHead(200, { 'content-length': 1024 ** 3 + 1 }).flushHeaders(),
    error: { code: 'InvalidPackage', message: /^The package is refused: .* more than 1073741824 bytes/ },
  },
  'sends something else': {
    answer: (_request, response) => response.end('<html>Log in first</html>'.repeat(100)),
    error: { code: 'InvalidPackage', message: /^The package is refused: .*not a tar archive/ },
  },
  'sends nothing': {
    answer: (_request, response) => response.end(),
    error: { code: 'InvalidPackage', message: /^The package is refused: / },
  },
};

for (const [name, { answer, error }] of Object.entries(wrongAnswers)) {
  t.test(`nothing is left of a package whose server ${name}`, async (t) => {
    const { shop, server, packages } = await prepare(t);
    server.served.answer = answer;
    await t.rejects(packages.install(server.url), error);
    t.equal(server.asked.length, 1, 'it is asked once');
    t.same(await packageFiles(shop), []);
  });
}

t.test('a cut download continues where it ended', async (t) => {
  const { server, body, packages } = await prepare(t);
  server.served.cutAfter = body.length - 10;
  t.match(await packages.install(server.url), { version: '1.0.0', changed: true });
  t.same(server.asked, ['whole', `bytes=${body.length - 10}-`]);
});

t.test('a download that the end of the agent cut off is continued by its next process', async (t) => {
  const { shop, server, body, packages } = await prepare(t);
  const [task, stopping] = [crypto.randomUUID(), new AbortController()];
  server.served.answer = (_request, response) =>
    response.writeHead(200, { etag: '"one"', 'content-length': body.length }).write(body.subarray(0, 700));
  const onProgress = () => stopping.abort(new Error('the agent stops'));
  const cut = packages.install(server.url, { taskId: task, signal: stopping.signal, onProgress });
  await t.rejects(cut, { message: 'the agent stops' });
  t.same(await packageFiles(shop), [`incoming/${task}`, `incoming/${task}.json`]);

  delete server.served.answer;
  const next = await openPackages(t, shop, { urls: [server.url] });
  t.match(await next.install(server.url, { taskId: task }), { version: '1.0.0', changed: true });
  t.same(server.asked, ['whole', 'bytes=700-']);
  t.same(await packageFiles(shop), INSTALLED);
});

t.test('what an earlier task has left is removed by the next installation', async (t) => {
  const { shop, file, packages } = await prepare(t);
  for (const name of ['other', 'other.json']) await writeFile(join(shop.data, 'packages/incoming', name), '{}');
  await packages.install(file);
  t.same(await packageFiles(shop), INSTALLED);
});
