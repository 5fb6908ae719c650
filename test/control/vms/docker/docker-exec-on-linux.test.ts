/**
 * `docker-exec` with real instances, a real agent and a real VM, by a plain TCP client as
 * sdc-docker is.
 */
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { allProcesses } from '../../../../lib/agent/machine/proc.ts';
import { lacksContainers } from '../../../support/container-machine.ts';
import { cannotMount } from '../../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';
import { startVm } from '../vm-on-linux.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();

interface Line {
  type: string;
  data: unknown;
}

/** Prints a line, then what is written to /in. */
const PRINTER = 'mkfifo /in; echo begun; while true; do cat /in; done';

function client(t: Test, { host, port }: { host: string; port: number }) {
  const socket = connect({ host, port });
  let text = '';
  let isOver = false;
  socket.on('data', (bytes) => {
    text += String(bytes);
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    isOver = true;
  });
  t.teardown(() => socket.destroy());
  const lines = () =>
    text
      .split('\r\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);
  const said = (type: string) =>
    lines()
      .filter((line) => line.type === type && typeof line.data === 'string')
      .map(({ data }) => data)
      .join('');
  return {
    socket,
    said,
    send: (line: object) => socket.write(`${JSON.stringify(line)}\r\n`),
    says: (type: string, words: RegExp) =>
      until(() => words.test(said(type)), `${words} on ${type}`).catch((cause: Error) => {
        throw new Error(`${cause.message} in ${JSON.stringify(said(type))}`, { cause });
      }),
    async ended() {
      await until(() => isOver, 'the end of the connection');
      return lines().at(-1);
    },
  };
}

t.test('programs and logs of a real VM, over TCP', { skip }, async (t) => {
  const { post, at } = await startVm(t, PRINTER);
  const ask = (command: object) => post<{ host: string; port: number }>(`${at}/docker-exec`, { command });
  const exec = async (t: Test, command: object) => {
    const { status, body } = await ask(command);
    t.equal(status, 200);
    return client(t, body);
  };
  const script = (text: string) => ({ Cmd: ['sh', '-c', text] });
  const end = (code: number) => ({ type: 'end', data: { code, signal: null } });

  await t.test('input, output, errors and the exit code', async (t) => {
    const cat = await exec(t, { ...script('cat; echo err >&2; exit 7'), AttachStdin: true });
    cat.send({ type: 'stdin', data: 'grüße\n' });
    await cat.says('stdout', /grüße\n/);
    cat.send({ type: 'end' });
    t.same(await cat.ended(), end(7));
    t.equal(cat.said('stderr'), 'err\n');
    const long = await exec(t, script('cat; head -c 5000000 /dev/zero | tr "\\0" x'));
    t.same(await long.ended(), end(0), 'a program without input reads its end');
    t.equal(long.said('stdout').length, 5_000_000);
  });

  await t.test('a terminal, and a size that is told before the program begins', async (t) => {
    const shell = await exec(t, { Cmd: ['sh'], AttachStdin: true, Tty: true });
    shell.send({ type: 'tty', resize: { h: 31, w: 97 } });
    shell.send({ type: 'tty', data: 'until [ "$(stty size)" = "31 97" ]; do sleep 0.1; done; echo si""zed\n' });
    // The shell puts back what it found, and may have begun before runc had turned ONLCR off:
    // \r\r\n.
    await shell.says('tty', /sized\r/);
    shell.send({ type: 'tty', data: 'exit 5\n' });
    t.match(await shell.ended(), { type: 'end', data: { code: 5 } });
  });

  await t.test('a program that the VM does not have', async (t) => {
    const missing = await exec(t, { Cmd: ['/no/such'] });
    t.same(await missing.ended(), end(127));
    t.match(missing.said('stderr'), /could not be started: .*NoSuchProgram/);
  });

  await t.test('a program ends when its caller breaks the connection', async (t) => {
    const sleeper = await exec(t, { ...script('echo begun; sleep 5551'), AttachStdin: true });
    await sleeper.says('stdout', /begun/);
    sleeper.socket.resetAndDestroy();
    await until(async () => !(await isRunning('5551')), 'the program to end');
  });

  await t.test('a detached program runs on by itself', async (t) => {
    t.same(await ask({ ...script('sleep 0.2; echo done >/detached'), Detach: true }), { status: 200, body: {} });
    const waiter = await exec(t, script('until grep done /detached; do sleep 0.1; done 2>/dev/null'));
    t.same(await waiter.ended(), end(0));
  });

  await t.test('the log, followed until the VM stops', async (t) => {
    const whole = await exec(t, { Logs: true, Tail: 'all', Cmd: ['Logs'] });
    t.match(await whole.ended(), { type: 'stdout' });
    t.equal(whole.said('stdout'), 'begun\n');
    const followed = await exec(t, { Logs: true, Tail: 0, Follow: true, Cmd: ['Logs'] });
    await (await exec(t, script('echo more >/in'))).ended();
    await followed.says('stdout', /^more\n$/);
    await post(`${at}/stop`, { force: true });
    t.match(await followed.ended(), { type: 'stdout' });
    t.match(await ask(script('true')), { status: 409, body: { code: 'VmNotRunning' } });
  });
});

/** Whether a process of this machine has this word in its command line. */
async function isRunning(word: string): Promise<boolean> {
  const lineOf = ({ pid }: { pid: number }) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return (await Promise.all((await allProcesses()).map(lineOf))).some((line) => line.includes(word));
}
