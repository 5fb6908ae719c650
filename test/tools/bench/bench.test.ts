/** The command line of the benchmark. The figures themselves are not tested. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { figures } from '../../../tools/bench/figures.ts';
import { BenchUsageError, parseBenchOptions } from '../../../tools/bench/options.ts';
import { peerFigures } from '../../../tools/peers/figures.ts';
import { until } from '../../support/until.ts';

const program = path.resolve(import.meta.dirname, '../../../tools/bench/main.ts');

function start(t: Test, args: readonly string[]) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-bench-test-'));
  chmodSync(folder, 0o711);
  const child = spawn(process.execPath, [program, ...args], { env: { ...process.env, TMPDIR: folder } });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (said.stdout += chunk));
  child.stderr.on('data', (chunk) => (said.stderr += chunk));
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  return { child, said, ended, folder };
}

t.test('figures have unique names', async (t) => {
  const names = [...figures, ...peerFigures].map(({ name }) => name);
  t.equal(new Set(names).size, names.length);
  for (const name of names) t.match(name, /^[a-z][a-z0-9-]*$/);
});

t.test('options are parsed into exact types', async (t) => {
  const figure = (name: string) => ({ name, says: '', seconds: 1, measure: async () => [] });
  const known = [figure('one'), figure('two'), figure('three')];
  t.match(parseBenchOptions([], known, []), { isJson: false, isQuick: false, figures: known, bus: undefined });
  t.match(parseBenchOptions(['--json', '--quick'], known, []), { isJson: true, isQuick: true });
  const chosen = parseBenchOptions(['--only', 'three,one'], known, [])?.figures.map(({ name }) => name);
  t.same(chosen, ['three', 'one'], 'in the order given');
  t.equal(parseBenchOptions(['--help'], known, []), undefined);
  const peers = [figure('four')];
  t.match(parseBenchOptions(['--peers'], known, peers), { isPeers: true, figures: peers });
  t.match(parseBenchOptions(['--peers', '--only', 'four'], known, peers), { figures: peers });
  t.match(parseBenchOptions(['--rounds', '5'], known, peers), { rounds: 5 });
  for (const args of [
    ['--only', 'four'],
    ['--rounds', '0'],
    ['--bus', 'pigeons'],
    ['--slowly'],
    ['--database-url', 'x'],
    ['all'],
  ]) {
    t.type(
      t.throws(() => parseBenchOptions(args, known, []), args.join(' ')),
      BenchUsageError,
    );
  }
});

t.test('--help names every figure, and a wrong option gives one line', async (t) => {
  const help = start(t, ['--help']);
  t.equal(await help.ended, 0);
  for (const { name } of [...figures, ...peerFigures]) t.match(help.said.stdout, `  ${name} `);
  const wrong = start(t, ['--only', 'nothing']);
  t.equal(await wrong.ended, 2);
  t.match(wrong.said.stderr, /^bench: --only nothing: the figures are .*\n$/);
});

for (const signal of ['SIGINT', 'SIGKILL'] as const) {
  t.test(`a run that is ended by ${signal} leaves no files behind`, async (t) => {
    const { child, said, ended, folder } = start(t, ['--quick']);
    await until(() => said.stderr.includes('measuring the floors'), 'the run to begin');
    child.kill(signal);
    t.equal(await ended, signal === 'SIGINT' ? 130 : null);
    await until(() => readdirSync(folder).length === 0, 'the folder to be empty');
    t.same(readdirSync(folder), []);
  });
}
