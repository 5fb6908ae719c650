/**
 * The logs of the containers of this server: rotated by size while the agent runs, read from any
 * place, and followed. Their files belong to the directory of the container and go with it.
 */
import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { Container, ContainerChange, ContainerSpec } from '../container.ts';
import type { ContainerState } from '../lifecycle.ts';
import { containerPaths } from '../linux/container-paths.ts';
import { LogFiles } from './log-files.ts';
import type { LogEntry } from './log-parser.ts';
import { LogRotation } from './log-rotation.ts';
import { LogWatch } from './log-watch.ts';
import { type ReadOptions, readContainerLog } from './read-log.ts';

interface ContainerLogsDeps {
  clock: Clock;
  log: Logger;
  /** The directory of all containers. */
  directory: string;
  containers: {
    list(): Container[];
    /** @throws ContainerNotFoundError */
    get(id: string): Container;
    onChange(listener: (change: ContainerChange) => void): () => void;
  };
  /** How often a log is checked for changes that the watch has missed. Default 10 s. */
  slowPollMs?: number;
}

interface ReadRequest extends ReadOptions {
  /** Whether to continue until the run of the container has ended. */
  follow?: boolean | undefined;
}

interface WatchedLog {
  files: LogFiles;
  watch: LogWatch;
}

export class ContainerLogs {
  readonly #deps: ContainerLogsDeps;
  /** The logs of containers that run or whose log is followed. */
  readonly #watched = new Map<string, WatchedLog>();
  /** What ends the rotation of a container that runs. */
  readonly #rotations = new Map<string, () => void>();
  readonly #stopped = new AbortController();
  #unlisten: (() => void) | undefined;

  constructor(deps: ContainerLogsDeps) {
    this.#deps = deps;
  }

  /** Call it after the start of the containers. */
  start(): void {
    const { containers } = this.#deps;
    this.#unlisten = containers.onChange(({ id, container }) => this.#see(id, container));
    for (const container of containers.list()) this.#see(container.spec.id, container);
  }

  /** Also ends all readers. */
  stop(): void {
    this.#unlisten?.();
    for (const end of this.#rotations.values()) end();
    this.#rotations.clear();
    this.#stopped.abort();
  }

  /**
   * The entries of a container's log, read from disk as the caller takes them. Reading ends when
   * the caller stops. @throws ContainerNotFoundError
   */
  read(id: string, request: ReadRequest = {}): AsyncGenerator<LogEntry[]> {
    const { containers } = this.#deps;
    containers.get(id);
    const { follow = false, ...options } = request;
    const signal = AbortSignal.any([this.#stopped.signal, ...(options.signal === undefined ? [] : [options.signal])]);
    if (!follow) return readContainerLog({ files: this.#filesOf(id) }, { ...options, signal });
    return this.#follow(id, { ...options, signal });
  }

  async *#follow(id: string, options: ReadOptions): AsyncGenerator<LogEntry[]> {
    const { files, watch } = this.#watch(id);
    const ended = new AbortController();
    const unlisten = this.#deps.containers.onChange((change) => {
      if (change.id === id && !isRunning(change.container?.state)) ended.abort();
    });
    try {
      if (!isRunning(this.#stateOf(id))) ended.abort();
      yield* readContainerLog({ files, follow: { watch, ended: ended.signal } }, options);
    } finally {
      unlisten();
      this.#release(id);
    }
  }

  #stateOf(id: string): ContainerState | undefined {
    return this.#deps.containers.list().find(({ spec }) => spec.id === id)?.state;
  }

  #filesOf(id: string): LogFiles {
    const { logs, control } = containerPaths(this.#deps.directory, id);
    return new LogFiles(logs, control);
  }

  /** Returns one watch for all readers of a log. */
  #watch(id: string): WatchedLog {
    const files = this.#filesOf(id);
    const { clock, slowPollMs } = this.#deps;
    const kept = this.#watched.get(id) ?? { files, watch: new LogWatch({ clock, files, slowPollMs }) };
    this.#watched.set(id, kept);
    return kept;
  }

  #release(id: string): void {
    if (this.#watched.get(id)?.watch.isUsed === false) this.#watched.delete(id);
  }

  #see(id: string, container: Container | undefined): void {
    const isKept = this.#rotations.has(id);
    if (container !== undefined && isRunning(container.state)) {
      if (isKept) this.#watched.get(id)?.watch.poll();
      else this.#rotations.set(id, this.#rotate(id, container.spec.log));
    } else if (isKept) {
      this.#rotations.get(id)?.();
      this.#rotations.delete(id);
      this.#release(id);
    }
  }

  /** Returns what ends that. */
  #rotate(id: string, limits: ContainerSpec['log']): () => void {
    const { files, watch } = this.#watch(id);
    const rotation = new LogRotation(files, limits);
    const check = () => void rotation.check().catch((error) => this.#complain(id, error));
    const unlisten = watch.listen(check);
    return () => {
      unlisten();
      check();
    };
  }

  #complain(id: string, error: unknown): void {
    this.#deps.log.error({ container: id, reason: messageOf(error) }, 'containers: a log cannot be rotated');
  }
}

const isRunning = (state: ContainerState | undefined): boolean =>
  state?.name === 'starting' || state?.name === 'running' || state?.name === 'stopping';
