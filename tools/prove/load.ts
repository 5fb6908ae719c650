/**
 * Creates tasks continuously through all instances: each is created at one instance and awaited at
 * the next. Each command on this machine's agent writes a line to a file, so that what ran is known
 * independently of the answers. Every accepted task must end exactly once, as complete.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Clock } from '../../lib/platform/clock.ts';
import type { Random } from '../../lib/platform/random.ts';
import type { Caller, TaskBody, TaskOrder } from './caller.ts';

export interface LoadDeps {
  caller: Caller;
  clock: Clock;
  random: Random;
}

const PATIENCE_MS = 60_000;
const PAUSE_MS = 100;
const COMMAND_LANES = 3;

export class Load {
  readonly complaints = new Set<string>();
  accepted = 0;
  commands = 0;
  readonly #deps: LoadDeps;
  readonly #directory = mkdtempSync(path.join(os.tmpdir(), 'cnapi-prove-'));
  readonly #file = path.join(this.#directory, 'ran');
  readonly #lanes: Promise<void>[] = [];
  /** The reported status of each command, by the line that it writes. */
  readonly #said = new Map<string, string>();
  #tokens = 0;
  #isOver = false;

  constructor(deps: LoadDeps) {
    this.#deps = deps;
    writeFileSync(this.#file, '', { mode: 0o622 });
  }

  /**
   * Finds the server whose commands run on this machine; undefined when all servers are simulated.
   */
  async findOwn(serverUuids: readonly string[]): Promise<string | undefined> {
    for (const serverUuid of serverUuids) {
      const token = await this.#command(serverUuid, 0);
      if (token !== undefined && this.#lines().includes(token)) return serverUuid;
      if (token !== undefined) this.#said.delete(token);
    }
    return undefined;
  }

  start(own: string | undefined, others: readonly string[]): void {
    if (own !== undefined) {
      for (let lane = 0; lane < COMMAND_LANES; lane++) this.#lane(() => this.#command(own, lane));
    }
    if (others.length === 0) return;
    let next = 0;
    this.#lane(() => this.#run(others[next++ % others.length] as string, { task: 'nop' }));
  }

  /** Resolves when every accepted task has ended and has been compared with what ran. */
  async finish(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
    const ran = this.#lines();
    for (const [token, status] of this.#said) {
      const times = ran.filter((line) => line === token).length;
      if (times !== 1) this.complaints.add(`command ${token} ran ${times} times and was answered as ${status}`);
    }
    rmSync(this.#directory, { recursive: true });
  }

  #lane(work: () => Promise<unknown>): void {
    const loop = async () => {
      while (!this.#isOver) {
        await work().catch((error: unknown) => this.complaints.add(String(error)));
        await this.#deps.clock.sleep(PAUSE_MS);
      }
    };
    this.#lanes.push(loop());
  }

  /** Returns the line that the command writes when it runs. */
  async #command(serverUuid: string, seconds: number): Promise<string | undefined> {
    const token = `command-${this.#tokens++}`;
    const script = `#!/bin/sh\necho ${token} >> ${this.#file}\nsleep ${seconds}\n`;
    const end = await this.#run(serverUuid, { task: 'command_execute', params: { script } });
    if (end === undefined) return undefined;
    this.commands += 1;
    this.#said.set(token, end.status);
    return token;
  }

  async #run(serverUuid: string, order: Omit<TaskOrder, 'key'>): Promise<TaskBody | undefined> {
    const { caller, random } = this.#deps;
    const created = await caller.createTask(serverUuid, { ...order, key: random.uuid() }, PATIENCE_MS);
    if (created.status !== 202) {
      this.complaints.add(`${order.task} for ${serverUuid}: ${created.status} ${JSON.stringify(created.body)}`);
      return undefined;
    }
    this.accepted += 1;
    const { status, body } = await caller.awaitTask(created.body.id, PATIENCE_MS);
    if (status !== 200 || body.status !== 'complete')
      this.complaints.add(`${order.task} ${created.body.id}: ${status} ${JSON.stringify(body)}`);
    return body;
  }

  #lines(): string[] {
    return readFileSync(this.#file, 'utf8').split('\n');
  }
}
