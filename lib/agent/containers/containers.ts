/**
 * The containers of this server. Each has a record on disk, which is written before anything is
 * done for its new state, so the next agent can continue. What happens to one container happens in
 * order; different containers do not wait for each other. lifecycle.ts says which state follows.
 */
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { type RecordEntry, RecordTable } from '../records/record-table.ts';
import type { Container, ContainerChange, ContainerSpec, ContainerUsage } from './container.ts';
import {
  ContainerBusyError,
  ContainerError,
  ContainerExistsError,
  ContainerNotFoundError,
  ContainerStateError,
  TooManyContainersError,
} from './container-errors.ts';
import { type ContainerEffect, type ContainerEvent, type ContainerState, stepContainer } from './lifecycle.ts';
import { preparationEvents, runForEvent, startEvents } from './outcomes.ts';
import type { ContainerRuntime, ExecRequest, PreparedExec, RunConsole, RunId } from './runtime.ts';

interface ContainersDeps {
  clock: Clock;
  log: Logger;
  runtime: ContainerRuntime;
  records: RecordFiles<Container>;
  /** Default 1,000. */
  maxContainers?: number;
}

interface StopRequest {
  /** A name, for example SIGTERM. */
  signal: string;
  /** The container is killed after this time; immediately if zero. */
  timeoutMs: number;
}

type Entry = RecordEntry<Container>;

const MAX_CONTAINERS = 1_000;
/** The runtime may start a program for each. */
const CONCURRENT_RECOVERIES = 8;
/** After a failed recovery; each further pause is twice as long. */
const RECOVER_AGAIN_MS = { first: 1_000, longest: 60_000 };
/** A stop lasts at most this long, also if the wall clock is set back meanwhile. */
const MAX_STOP_MS = 3_600_000;

export class Containers {
  readonly #deps: ContainersDeps;
  readonly #maxContainers: number;
  readonly #table: RecordTable<Container>;
  /** Each kills a container when its stop takes too long. */
  readonly #killTimers = new Map<string, Timer>();
  readonly #listeners = new Set<(change: ContainerChange) => void>();
  readonly #recoveries = new Semaphore(CONCURRENT_RECOVERIES);
  readonly #stopping = new AbortController();

  constructor(deps: ContainersDeps) {
    this.#deps = deps;
    this.#maxContainers = deps.maxContainers ?? MAX_CONTAINERS;
    this.#table = new RecordTable({
      log: deps.log,
      noun: 'container',
      files: deps.records,
      idOf: ({ spec }) => spec.id,
      errors: {
        notFound: (id) => new ContainerNotFoundError(id),
        unreadable: (id, reason) => new ContainerBusyError(id, reason),
        unrecorded: (id, cause) => new ContainerError(`Container ${id} cannot be recorded: ${messageOf(cause)}`, cause),
      },
    });
    deps.runtime.onEnd(({ id, number }, exit) => this.#handleInBackground(id, { type: 'ended', run: number, exit }));
  }

  /**
   * Finds the containers of an earlier agent, and continues what it had begun; again later where
   * that fails.
   */
  async start(): Promise<void> {
    const { runtime, log } = this.#deps;
    await this.#table.load();
    for (const id of await runtime.leftovers()) {
      if (this.#table.peek(id) !== undefined || this.unreadableReason(id) !== undefined) continue;
      log.warn({ container: id }, 'containers: removing what is left of a container that has no record');
      await this.#logFailure(id, () => runtime.remove(id));
    }
    await Promise.all(this.#table.entries().map((entry) => this.#recover(entry)));
  }

  /** Leaves the containers as they are: the next agent finds them. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const timer of this.#killTimers.values()) timer.cancel();
    await this.#deps.runtime.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  list(): Container[] {
    return this.#table.list();
  }

  /** If true, the layers in use are not known. */
  get hasUnreadable(): boolean {
    return this.#table.hasUnreadable;
  }

  /**
   * Why the record of a container cannot be read; undefined if it can be read, or does not exist.
   */
  unreadableReason(id: string): string | undefined {
    return this.#table.unreadableReason(id);
  }

  /** @throws ContainerBusyError if its record cannot be read, as everything that takes an id */
  find(id: string): Container | undefined {
    return this.#table.find(id)?.record;
  }

  /** @throws ContainerNotFoundError */
  get(id: string): Container {
    return this.#table.get(id).record;
  }

  /** Calls the listener after each change. Returns a function that unsubscribes. */
  onChange(listener: (change: ContainerChange) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Creates a container without starting it. A repeated create with the same properties returns the
   * container in its present state. A container that cannot be created is `failed`, with the
   * reason.
   * @throws ContainerExistsError, TooManyContainersError
   */
  async create(spec: ContainerSpec): Promise<Container> {
    const known = this.#table.find(spec.id);
    if (known !== undefined) {
      if (!isDeepStrictEqual(known.record.spec, spec)) throw new ContainerExistsError(spec.id);
      return known.lock.run(async () => known.record);
    }
    if (this.#table.size >= this.#maxContainers) throw new TooManyContainersError(this.#maxContainers);
    const changedAt = this.#deps.clock.wallTime();
    return this.#table.create({ spec, state: { name: 'creating' }, changedAt }, async (entry) => {
      this.#announce(spec.id);
      await this.#perform(entry, { do: 'prepare' });
      return entry.record;
    });
  }

  /**
   * Resolves when the container runs, or has already stopped again. Idempotent.
   * @throws ContainerNotFoundError, ContainerStateError
   */
  startContainer(id: string): Promise<Container> {
    return this.#apply(id, { type: 'start' });
  }

  /**
   * Resolves when the container has stopped; immediately if it does not run.
   * @throws ContainerNotFoundError, ContainerStateError
   */
  async stopContainer(id: string, { signal, timeoutMs }: StopRequest): Promise<Container> {
    const container = await this.#apply(id, { type: 'stop', signal, timeoutMs });
    return (await this.#waitForState(id, (state) => state?.name !== 'stopping')) ?? container;
  }

  /** @throws ContainerNotFoundError, ContainerStateError */
  async signal(id: string, signal: string): Promise<void> {
    await this.#apply(id, { type: 'signal', signal });
  }

  /**
   * Resolves when the container and all its files are removed. With `force` a running container is
   * killed first.
   * @throws ContainerNotFoundError, ContainerStateError; ContainerError if something cannot be
   * removed; then call `delete` again
   */
  async delete(id: string, { force }: { force: boolean }): Promise<void> {
    const event = { type: 'delete', force } as const;
    await this.#apply(id, event);
    const left = await this.#waitForState(id, (state) => state?.name !== 'deleting' || state.run === undefined);
    if (left === undefined) return;
    await this.#stepIfAny(id, event);
  }

  /**
   * Prepares another program in a running container.
   * @throws ContainerNotFoundError, ContainerStateError, ContainerError
   */
  async prepareExec(id: string, request: ExecRequest): Promise<PreparedExec> {
    return this.#deps.runtime.prepareExec(this.#currentRun(id), request);
  }

  /** Undefined if its program runs without a terminal. @throws as `usage` */
  async findConsole(id: string): Promise<RunConsole | undefined> {
    return this.#deps.runtime.findConsole(this.#currentRun(id));
  }

  /** @throws ContainerNotFoundError, ContainerStateError */
  async usage(id: string): Promise<ContainerUsage> {
    const usage = await this.#deps.runtime.usage(this.#currentRun(id));
    if (usage === undefined) throw new ContainerStateError(id, 'is-not-running', this.get(id).state);
    return usage;
  }

  /** Ids of the processes of a running container on the machine. @throws as `usage` */
  async processes(id: string): Promise<readonly number[]> {
    return this.#deps.runtime.processes(this.#currentRun(id));
  }

  /**
   * Replaces the specification, except the layers. A container that runs gets its limits now and
   * the rest at its next start. @throws ContainerNotFoundError, ContainerError
   */
  change(spec: ContainerSpec): Promise<Container> {
    const entry = this.#table.get(spec.id);
    return this.#table.withLock(entry, async () => {
      const { root, limits } = entry.record.spec;
      const { state } = entry.record;
      const next = { ...entry.record, spec: { ...spec, root } };
      await this.#table.save(entry, next);
      if (state.name === 'running' && !isDeepStrictEqual(limits, spec.limits))
        await this.#deps.runtime.updateLimits(next.spec, state.run);
      return next;
    });
  }

  /** Runs `work` while nothing else happens to the container. @throws ContainerNotFoundError */
  withLock<Result>(id: string, work: (locked: { container: Container }) => Promise<Result>): Promise<Result> {
    const entry = this.#table.get(id);
    return this.#table.withLock(entry, () => work({ container: entry.record }));
  }

  #currentRun(id: string): RunId {
    const { state } = this.get(id);
    if (state.name === 'running' || state.name === 'stopping') return { id, number: state.run };
    throw new ContainerStateError(id, 'is-not-running', state);
  }

  /**
   * The end of a run is reported only after the run was found, so this is repeated until it
   * succeeds.
   */
  async #recover(entry: Entry, pauseMs = RECOVER_AGAIN_MS.first, loaded = entry.record.state): Promise<void> {
    const { clock, log, runtime } = this.#deps;
    const { signal } = this.#stopping;
    const { id } = entry.record.spec;
    try {
      await this.#recoveries.run(() =>
        entry.lock.run(async () => {
          if (signal.aborted || !this.#table.has(entry)) return;
          const { state } = entry.record;
          const run = 'run' in state ? state.run : undefined;
          const recovered = run === undefined ? 'not-started' : await runtime.find({ id, number: run });
          await this.#step(entry, { type: 'recovered', found: recovered, hasChanged: state !== loaded });
        }),
      );
    } catch (err) {
      if (signal.aborted) return;
      log.error(
        { err, container: id, pause_ms: pauseMs },
        'containers: a container cannot be recovered; the agent tries again',
      );
      const nextMs = Math.min(2 * pauseMs, RECOVER_AGAIN_MS.longest);
      void clock.sleep(pauseMs, signal).then(() => this.#recover(entry, nextMs, loaded));
    }
  }

  async #apply(id: string, event: ContainerEvent): Promise<Container> {
    const entry = this.#table.get(id);
    return this.#table.withLock(entry, async () => {
      await this.#step(entry, event);
      return entry.record;
    });
  }

  /** Handles an event that no caller waits for. */
  #handleInBackground(id: string, event: ContainerEvent): void {
    void this.#logFailure(id, () => this.#stepIfAny(id, event));
  }

  async #stepIfAny(id: string, event: ContainerEvent): Promise<void> {
    const entry = this.#table.peek(id);
    await entry?.lock.run(async () => {
      if (this.#table.has(entry)) await this.#step(entry, event);
    });
  }

  /** Call it only while the entry's lock is held. */
  async #step(entry: Entry, event: ContainerEvent): Promise<void> {
    const { clock, log } = this.#deps;
    const { state, spec } = entry.record;
    const step = stepContainer(state, event, clock.wallTime());
    if ('refusal' in step) throw new ContainerStateError(spec.id, step.refusal, state);
    if (step.state === undefined) {
      await this.#forget(entry);
    } else if (!isDeepStrictEqual(step.state, state)) {
      const next = { ...entry.record, state: step.state, changedAt: clock.wallTime() };
      // The next agent would not find what a create and a start make. It finds out what has ended.
      const isOptional = event.type !== 'start' && event.type !== 'prepared';
      await this.#table.save(entry, next, { isOptional });
      const fields = { container: spec.id, from: state, to: step.state, event: event.type };
      log.info(fields, `container: ${state.name} -> ${step.state.name}`);
      this.#announce(spec.id);
    }
    for (const effect of step.effects) await this.#perform(entry, effect);
  }

  async #perform(entry: Entry, effect: ContainerEffect): Promise<void> {
    const { clock, runtime } = this.#deps;
    const { spec } = entry.record;
    const { id } = spec;
    switch (effect.do) {
      case 'prepare':
        return this.#prepare(entry);
      case 'start':
        return this.#step(entry, await runForEvent(() => runtime.start(spec, effect.run), startEvents(effect.run)));
      case 'signal':
        return runtime.signal({ id, number: effect.run }, effect.signal);
      case 'arm-kill': {
        const leftMs = Math.min(effect.at - clock.wallTime(), MAX_STOP_MS);
        const kill = () => this.#handleInBackground(id, { type: 'kill-due', run: effect.run });
        this.#cancelKill(id);
        this.#killTimers.set(id, clock.after(Math.max(leftMs, 0), kill));
        return;
      }
      case 'clean-up':
        this.#cancelKill(id);
        return this.#logFailure(id, () => runtime.cleanUpRun({ id, number: effect.run }));
      case 'remove':
        this.#cancelKill(id);
        await runtime.remove(id);
        return this.#step(entry, { type: 'deleted' });
      default:
        return effect satisfies never;
    }
  }

  async #prepare(entry: Entry): Promise<void> {
    const { spec } = entry.record;
    const event = await runForEvent(() => this.#deps.runtime.prepare(spec), preparationEvents);
    const recorded = await runForEvent(() => this.#step(entry, event), preparationEvents);
    if (recorded.type === 'preparation-failed') await this.#step(entry, recorded);
  }

  async #forget(entry: Entry): Promise<void> {
    const { id } = entry.record.spec;
    await this.#table.remove(entry);
    this.#deps.log.info({ container: id }, 'containers: a container is deleted');
    this.#announce(id);
  }

  #cancelKill(id: string): void {
    this.#killTimers.get(id)?.cancel();
    this.#killTimers.delete(id);
  }

  #announce(id: string): void {
    const change = { id, container: this.#table.peek(id)?.record };
    for (const listener of this.#listeners) listener(change);
  }

  /**
   * Resolves with the container when `isWanted` accepts its state; with undefined after its
   * deletion.
   */
  #waitForState(id: string, isWanted: (state: ContainerState | undefined) => boolean): Promise<Container | undefined> {
    return new Promise((resolve) => {
      const check = () => {
        const container = this.#table.peek(id)?.record;
        if (container !== undefined && !isWanted(container.state)) return;
        unlisten();
        resolve(container);
      };
      const unlisten = this.onChange((change) => void (change.id === id && check()));
      check();
    });
  }

  /** Runs `work`, and logs its failure. */
  async #logFailure(id: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (err) {
      this.#deps.log.error({ err, container: id }, 'containers: work on a container failed');
    }
  }
}
