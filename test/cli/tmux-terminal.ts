/** A real terminal, by tmux. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Test } from 'tap';
import { until } from '../support/until.ts';
import { has } from './rig.ts';

/** Why no terminal can be had here; false if one can. */
export function lacksTmux(): string | false {
  const hasTmux = spawnSync('tmux', ['-V']).status === 0;
  return hasTmux || process.env.CNAPI_TEST_NO_SKIP ? false : 'tmux is not installed';
}

export class Terminal {
  readonly #socket: string;
  readonly #within: readonly string[];

  constructor(t: Test, env: Record<string, string>) {
    const folder = mkdtempSync(path.join(tmpdir(), 'cnapi-tmux-'));
    this.#socket = path.join(folder, 'socket');
    this.#within = [
      'env',
      '-i',
      ...Object.entries({ PATH: process.env.PATH ?? '', TERM: 'screen', ...env }).map(
        ([name, value]) => `${name}=${value}`,
      ),
    ];
    const session = ['new-session', '-d', '-c', folder, '-x', '100', '-y', '30'];
    this.#tmux('-f', '/dev/null', ...session, [...this.#within, "PS1='$ '", 'sh'].join(' '));
    t.teardown(() => {
      this.#tmux('kill-server');
      rmSync(folder, { recursive: true, force: true });
    });
  }

  type(line: string): void {
    this.#tmux('send-keys', '-l', line);
    this.key('Enter');
  }

  /**
   * Runs in a window that closes when the command ends, below a shell without job control. Directly
   * below tmux a stopped process would be continued.
   */
  runAlone(command: string): void {
    this.#tmux('new-window', [...this.#within, command, '; :'].join(' '));
  }

  key(name: string): void {
    this.#tmux('send-keys', name);
  }

  resize(columns: number, rows: number): void {
    this.#tmux('resize-window', '-x', `${columns}`, '-y', `${rows}`);
  }

  screen(): string {
    return this.#tmux('capture-pane', '-p');
  }

  async shows(text: string | RegExp): Promise<string> {
    const look = () => {
      const screen = this.screen();
      return has(screen, text) ? screen : undefined;
    };
    return until(look, `${text}`).catch((cause: Error) => {
      throw new Error(`${cause.message} in\n${this.screen()}`, { cause });
    });
  }

  #tmux(...args: string[]): string {
    return execFileSync('tmux', ['-S', this.#socket, ...args], { encoding: 'utf8' });
  }
}
