/**
 * The consoles of VMs: terminals in which their own programs run. Any number of callers read one;
 * the last that has asked for it writes.
 *
 *     reading ── take ──► writing ── another caller takes it, or `release` ──► reading
 *
 * Only who writes is kept here, in memory. A terminal and its output belong to the run of the VM
 * and outlive the agent; after a restart nobody writes until a caller attaches.
 */
import type { ConsoleInput, RunConsole } from '../containers/runtime.ts';
import { VmError } from './vm-errors.ts';

interface VmConsolesDeps {
  /** @throws VmError if the VM does not run */
  find(uuid: string): Promise<RunConsole | undefined>;
}

export interface ConsoleWriter extends ConsoleInput {
  /** Aborts when another caller writes. */
  readonly replaced: AbortSignal;
}

export class VmConsoles {
  readonly #deps: VmConsolesDeps;
  readonly #writers = new Map<string, AbortController>();

  constructor(deps: VmConsolesDeps) {
    this.#deps = deps;
  }

  /** @throws VmError */
  async get(uuid: string): Promise<RunConsole> {
    const found = await this.#deps.find(uuid);
    if (found !== undefined) return found;
    throw new VmError(
      'NoConsole',
      `VM ${uuid} has no console, because its program runs without a terminal; set docker:tty to "true" in its internal_metadata, and reboot it`,
    );
  }

  /** The input of a console; who had it before loses it. @throws ContainerError */
  async take(uuid: string, { openInput }: RunConsole): Promise<ConsoleWriter> {
    const own = new AbortController();
    this.#writers.get(uuid)?.abort();
    this.#writers.set(uuid, own);
    const release = () => void (this.#writers.get(uuid) === own && this.#writers.delete(uuid));
    try {
      const { input, ended, close } = await openInput();
      void ended.then(release);
      return { input, ended, close, replaced: own.signal };
    } catch (error) {
      release();
      throw error;
    }
  }
}
