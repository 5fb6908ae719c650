/**
 * `docker-copy` and `docker-stats` with real instances, a real agent and a real VM, by a plain TCP
 * client as sdc-docker is.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { Parser } from 'tar';
import { lacksContainers } from '../../../support/container-machine.ts';
import { archiveOf, type TestEntry } from '../../../support/layer-archive.ts';
import { cannotMount } from '../../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';
import { startVm } from '../vm-on-linux.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();

interface Address {
  host: string;
  port: number;
}
interface Copied extends Address {
  containerPathStat: { name: string; size: number; mode: number; linkTarget: string };
}

/** Makes files, and works for ever. */
const FILES = 'mkdir -p /dir/sub; echo hello >/dir/file; ln -s file /dir/link; : >/ready; while true; do :; done';
const DIRECTORY = 2 ** 31;
const LINK = 2 ** 27;

function client(t: Test, { host, port }: Address) {
  const socket = connect({ host, port });
  const pieces: Buffer[] = [];
  let failure: NodeJS.ErrnoException | undefined;
  let isOver = false;
  socket.on('data', (bytes) => pieces.push(bytes));
  socket.on('error', (error) => {
    failure = error;
  });
  socket.on('close', () => {
    isOver = true;
  });
  t.teardown(() => socket.destroy());
  return {
    socket,
    text: () => Buffer.concat(pieces).toString(),
    /** What it has received, or why the connection broke. */
    async ended() {
      await until(() => isOver, 'the end of the connection');
      return failure?.code ?? Buffer.concat(pieces);
    },
  };
}

/** The files of an archive with their contents, and its other entries with their kinds. */
async function entriesOf(archive: Buffer): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const parser = new Parser({
    strict: true,
    onReadEntry(entry) {
      found[entry.path] = entry.type === 'File' ? '' : `${entry.type} ${entry.linkpath ?? ''}`.trim();
      entry.on('data', (bytes) => {
        found[entry.path] += String(bytes);
      });
    },
  });
  const over = once(parser, 'end');
  parser.end(archive);
  await over;
  return found;
}

t.test('files and statistics of a real VM, over TCP', { skip }, async (t) => {
  const { post, at } = await startVm(t, FILES);
  const ask = (params: object) => post<Copied>(`${at}/docker-copy`, params);
  await until(async () => (await ask({ path: '/ready', mode: 'stat' })).status === 200, 'the files');
  const read = async (path: string) => {
    const { status, body } = await ask({ path });
    t.equal(status, 200, path);
    const archive = await client(t, body).ended();
    return typeof archive === 'string' ? archive : entriesOf(archive);
  };
  const write = async (path: string, archive: Buffer) => {
    const { status, body } = await ask({ path, mode: 'write', no_overwrite_dir: true });
    t.equal(status, 200, path);
    const { socket, ended } = client(t, body);
    socket.end(archive);
    return String(await ended());
  };

  await t.test('what is at a path', async (t) => {
    t.match((await ask({ path: '/dir/link', mode: 'stat' })).body, {
      containerPathStat: { name: 'dir/link', size: 4, mode: LINK + 0o777, linkTarget: 'file' },
    });
    t.match((await ask({ path: '/dir' })).body, { containerPathStat: { name: 'dir', mode: DIRECTORY + 0o755 } });
    t.match(await ask({ path: '/dir/none' }), { status: 404, body: { code: 'FileNotFound' } });
    t.match(await ask({ path: '/dir/file/x' }), { status: 400, body: { code: 'PathNotDirectory' } });
    t.match(await ask({ path: '/dir/file', mode: 'write' }), { status: 400, body: { code: 'PathNotDirectory' } });
  });

  await t.test('a directory and a file are read as archives, and links stay links', async (t) => {
    const whole = {
      'dir/': 'Directory',
      'dir/sub/': 'Directory',
      'dir/file': 'hello\n',
      'dir/link': 'SymbolicLink file',
    };
    t.same(await read('/dir'), whole);
    t.same(await read('/dir/file'), { file: 'hello\n' });
  });

  await t.test('an archive is unpacked into a directory, over what it has', async (t) => {
    const large = 'x'.repeat(2_000_000);
    const entries: TestEntry[] = [
      { path: './file', contents: 'changed' },
      { path: './sub/' },
      { path: 'sub/large', contents: large, mode: 0o600 },
      { path: 'link', contents: 'no link any more' },
    ];
    t.equal(await write('/dir', archiveOf(entries)), '');
    t.same(await read('/dir'), {
      'dir/': 'Directory',
      'dir/sub/': 'Directory',
      'dir/sub/large': large,
      'dir/file': 'changed',
      'dir/link': 'no link any more',
    });
  });

  await t.test('an archive that is cut, hostile or in the way of a directory changes nothing', async (t) => {
    const before = await read('/dir');
    const change: TestEntry = { path: 'file', contents: 'lost' };
    const rows: [name: string, archive: Buffer][] = [
      ['cut before its end', archiveOf([change]).subarray(0, -1024)],
      ['cut in a file', archiveOf([change, { path: 'more', contents: large(100_000) }]).subarray(0, 50_000)],
      ['outside', archiveOf([change, { path: '../outside', contents: 'x' }])],
      ['a file for a directory', archiveOf([change, { path: 'sub', contents: 'x' }])],
    ];
    for (const [name, archive] of rows) t.equal(await write('/dir', archive), 'ECONNRESET', name);
    t.same(await read('/dir'), before, 'and nothing is left');
    t.match(await ask({ path: '/outside', mode: 'stat' }), { status: 404 });
  });

  await t.test('statistics until the VM stops', async (t) => {
    const stats = (payload: object) => post<Address>(`${at}/docker-stats`, { payload });
    const one = client(t, (await stats({ doStream: false })).body);
    const line = JSON.parse(String(await one.ended()));
    t.match(line, { memory_stats: { limit: 64 * 1024 * 1024 }, network: { rx_bytes: Number } });
    t.ok(line.memory_stats.usage > 0);
    t.ok(line.pids_stats.current > 0);
    t.ok(line.cpu_stats.cpu_usage.total_usage > line.precpu_stats.cpu_usage.total_usage, 'it works all the time');
    const all = client(t, (await stats({ clientApiVersion: 1.21 })).body);
    const lines = () => all.text().split('\r\n').slice(0, -1);
    await until(() => lines().length >= 2, 'two lines');
    t.match(JSON.parse(lines()[1] ?? '').preread, JSON.parse(lines()[0] ?? '').read);
    await post(`${at}/stop`, { force: true });
    t.type(await all.ended(), Buffer, 'the end of the VM is the end');
    t.match(await stats({}), { status: 409, body: { code: 'VmNotRunning' } });
    const code = 'DockerCopyStoppedContainerNoPlatformSupport';
    t.match(await ask({ path: '/dir' }), { status: 409, body: { code } });
  });
});

const large = (bytes: number) => 'y'.repeat(bytes);
