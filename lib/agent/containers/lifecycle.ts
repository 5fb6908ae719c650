/**
 * The states of a container and what leads from one to the next. Pure; containers.ts drives it and
 * keeps the state on disk (../records).
 *
 *                prepared            start             started           stop
 *     creating ───────────► created ───────► starting ─────────► running ──────► stopping
 *        │                               ┌────►         │ ended        │ ended         │ ended
 *        │ failed                  start │             ▼              ▼               ▼
 *        └──────► failed             stopped ◄──────────────────────────────────────────
 *
 * `delete` leads from every state but `creating` to `deleting`; with `force` also while it runs,
 * and then its run is ended first. When everything is removed, the container is gone.
 *
 * A run is one start of the container, numbered from 1. What belongs to an earlier run changes
 * nothing. An agent that starts reads the states from disk, looks for the runs, and gives each
 * container one `recovered` event.
 */

/** How a run ended. */
export type ContainerExit =
  /** The first process exited by itself. */
  | { code: number; outOfMemory?: true }
  /** A signal ended it, for example SIGKILL. */
  | { signal: string; outOfMemory?: true }
  /** The exit status is not known, or the run never began; a sentence says why. */
  | { unknown: string };

export type ContainerState =
  | { name: 'creating' }
  /** Has never run. */
  | { name: 'created' }
  | { name: 'starting'; run: number }
  | { name: 'running'; run: number }
  /**
   * `killAt`: the time of the kill (wall clock of the machine, milliseconds). The next agent uses
   * it too. That agent sends `signal` again, because it cannot know whether the signal was sent.
   */
  | { name: 'stopping'; run: number; killAt: number; signal?: string }
  | { name: 'stopped'; run: number; exit: ContainerExit }
  /** The container could not be created and can only be deleted. `reason` is a sentence. */
  | { name: 'failed'; reason: string }
  /** `run` must end before anything is removed. */
  | { name: 'deleting'; run: number | undefined };

export type ContainerEvent =
  | { type: 'prepared' }
  | { type: 'preparation-failed'; reason: string }
  | { type: 'start' }
  | { type: 'started'; run: number }
  /** The runtime could not start it; nothing of the run is left. */
  | { type: 'start-failed'; run: number; reason: string }
  /**
   * `timeoutMs` 0 kills the container immediately. A second stop can only shorten the time of the
   * first.
   */
  | { type: 'stop'; signal: string; timeoutMs: number }
  | { type: 'signal'; signal: string }
  | { type: 'kill-due'; run: number }
  | { type: 'ended'; run: number; exit: ContainerExit }
  | { type: 'delete'; force: boolean }
  | { type: 'deleted' }
  /** What a new agent found of the container's last run. */
  | {
      type: 'recovered';
      found: 'running' | 'not-started' | { exit: ContainerExit };
      /** The container's state differs from that in the record that the agent has found. */
      hasChanged?: boolean;
    };

export type ContainerEffect =
  /** Make the root file system and the runtime's configuration. */
  | { do: 'prepare' }
  | { do: 'start'; run: number }
  | { do: 'signal'; run: number; signal: string }
  /** Replaces the run's earlier timer; at that time comes `kill-due`. */
  | { do: 'arm-kill'; run: number; at: number }
  /** End and remove what the runtime has of the run. */
  | { do: 'clean-up'; run: number }
  /** Remove everything that the container has, its run included; then comes `deleted`. */
  | { do: 'remove' };

/** Why a container refuses a command in its state. */
export type ContainerRefusal =
  | 'is-creating'
  | 'is-starting'
  | 'is-running'
  | 'is-stopping'
  | 'is-not-running'
  | 'has-failed'
  | 'is-deleting';

export type ContainerStep =
  /** `state` is undefined when the container is gone. */
  { state: ContainerState | undefined; effects: readonly ContainerEffect[] } | { refusal: ContainerRefusal };

/** The container received an event that its state cannot have. */
export class ContainerTransitionError extends Error {
  constructor(state: ContainerState, event: ContainerEvent) {
    super(`A container that is ${state.name} cannot have the event ${event.type}`);
    this.name = 'ContainerTransitionError';
  }
}

const KILL_AGAIN_MS = 5_000;

/** `now`: wall clock of the machine in milliseconds. Does not modify `state`. */
export function stepContainer(state: ContainerState, event: ContainerEvent, now: number): ContainerStep {
  switch (event.type) {
    case 'prepared':
      return state.name === 'creating' ? to({ name: 'created' }) : illegal(state, event);
    case 'preparation-failed':
      return state.name === 'creating' ? to({ name: 'failed', reason: event.reason }) : illegal(state, event);
    case 'start':
      return onStart(state);
    case 'started':
      // Its end may be seen first.
      return state.name === 'starting' && state.run === event.run ? to({ name: 'running', run: state.run }) : to(state);
    case 'start-failed':
      return onEnded(state, event.run, { unknown: event.reason });
    case 'ended':
      return onEnded(state, event.run, event.exit);
    case 'stop':
      return onStop(state, event, now);
    case 'signal':
      return onSignal(state, event.signal);
    case 'kill-due':
      return (state.name === 'stopping' || state.name === 'deleting') && state.run === event.run
        ? to(state, killing(event.run, now))
        : to(state);
    case 'delete':
      return onDelete(state, event.force, now);
    case 'deleted':
      return state.name === 'deleting' ? to(undefined) : illegal(state, event);
    case 'recovered':
      return onRecovered(state, event, now);
    default:
      return event satisfies never;
  }
}

const to = (state: ContainerState | undefined, effects: readonly ContainerEffect[] = []): ContainerStep => ({
  state,
  effects,
});

/** The timer is armed first, so a kill that fails is repeated until the run has ended. */
const killing = (run: number, now: number): ContainerEffect[] => [
  { do: 'arm-kill', run, at: now + KILL_AGAIN_MS },
  { do: 'signal', run, signal: 'SIGKILL' },
];

function illegal(state: ContainerState, event: ContainerEvent): never {
  throw new ContainerTransitionError(state, event);
}

/** Idempotent: a container that runs or starts is not changed. */
function onStart(state: ContainerState): ContainerStep {
  switch (state.name) {
    case 'created':
      return starting(1);
    case 'stopped':
      return starting(state.run + 1);
    case 'starting':
    case 'running':
      return to(state);
    case 'stopping':
      return { refusal: 'is-stopping' };
    default:
      return { refusal: refusalOf(state) };
  }
}

const starting = (run: number): ContainerStep => to({ name: 'starting', run }, [{ do: 'start', run }]);

function onEnded(state: ContainerState, run: number, exit: ContainerExit): ContainerStep {
  switch (state.name) {
    case 'starting':
    case 'running':
    case 'stopping':
      return state.run === run ? to({ name: 'stopped', run, exit }, [{ do: 'clean-up', run }]) : to(state);
    case 'deleting':
      return state.run === run ? to({ name: 'deleting', run: undefined }, [{ do: 'remove' }]) : to(state);
    default:
      return to(state);
  }
}

/** Idempotent: a container that does not run stays as it is. */
function onStop(
  state: ContainerState,
  { signal, timeoutMs }: { signal: string; timeoutMs: number },
  now: number,
): ContainerStep {
  const killAt = now + timeoutMs;
  switch (state.name) {
    case 'created':
    case 'stopped':
      return to(state);
    case 'running':
    case 'stopping': {
      const { run } = state;
      // The kill of an earlier stop is due and has failed.
      if (state.name === 'stopping' && state.killAt <= now) return to(state, killing(run, now));
      const isSooner = state.name !== 'stopping' || killAt < state.killAt;
      if (!isSooner) return to(state);
      if (timeoutMs <= 0) return to({ name: 'stopping', run, killAt }, killing(run, now));
      // The timer is armed first: the signal may fail.
      return to({ name: 'stopping', run, killAt, signal }, [
        { do: 'arm-kill', run, at: killAt },
        { do: 'signal', run, signal },
      ]);
    }
    default:
      return { refusal: refusalOf(state) };
  }
}

function onSignal(state: ContainerState, signal: string): ContainerStep {
  switch (state.name) {
    case 'running':
    case 'stopping':
      return to(state, [{ do: 'signal', run: state.run, signal }]);
    case 'created':
    case 'stopped':
      return { refusal: 'is-not-running' };
    default:
      return { refusal: refusalOf(state) };
  }
}

function onDelete(state: ContainerState, force: boolean, now: number): ContainerStep {
  switch (state.name) {
    case 'creating':
    case 'starting':
      return { refusal: refusalOf(state) };
    case 'created':
    case 'stopped':
    case 'failed':
      return to({ name: 'deleting', run: undefined }, [{ do: 'remove' }]);
    case 'running':
    case 'stopping':
      if (!force) return { refusal: 'is-running' };
      return to({ name: 'deleting', run: state.run }, killing(state.run, now));
    // A removal that failed is tried again.
    case 'deleting':
      return to(state, state.run === undefined ? [{ do: 'remove' }] : killing(state.run, now));
    default:
      return state satisfies never;
  }
}

function onRecovered(
  state: ContainerState,
  event: Extract<ContainerEvent, { type: 'recovered' }>,
  now: number,
): ContainerStep {
  const { found } = event;
  switch (state.name) {
    case 'creating':
      return to({ name: 'failed', reason: 'The agent ended while it created the container' });
    case 'created':
    case 'failed':
      return to(state);
    // The agent may have ended before it removed what the runtime had.
    case 'stopped':
      return to(state, [{ do: 'clean-up', run: state.run }]);
    case 'starting':
    case 'running':
    case 'stopping':
      return recoveredRun(state, event);
    case 'deleting':
      if (state.run !== undefined && found === 'running') return to(state, killing(state.run, now));
      return to({ name: 'deleting', run: undefined }, [{ do: 'remove' }]);
    default:
      return state satisfies never;
  }
}

function recoveredRun(
  state: Extract<ContainerState, { name: 'starting' | 'running' | 'stopping' }>,
  { found, hasChanged = false }: Extract<ContainerEvent, { type: 'recovered' }>,
): ContainerStep {
  const { run } = state;
  if (found !== 'running') {
    const exit = found === 'not-started' ? { unknown: 'The agent ended while it started the container' } : found.exit;
    return to({ name: 'stopped', run, exit }, [{ do: 'clean-up', run }]);
  }
  if (state.name !== 'stopping') return to({ name: 'running', run });
  const { killAt, signal } = state;
  return to(state, [
    { do: 'arm-kill', run, at: killAt },
    // This agent has sent the signal of a stop that came since then.
    ...(signal === undefined || hasChanged ? [] : [{ do: 'signal' as const, run, signal }]),
  ]);
}

function refusalOf(state: { name: 'creating' | 'starting' | 'failed' | 'deleting' }): ContainerRefusal {
  switch (state.name) {
    case 'creating':
      return 'is-creating';
    case 'starting':
      return 'is-starting';
    case 'failed':
      return 'has-failed';
    case 'deleting':
      return 'is-deleting';
    default:
      return state.name satisfies never;
  }
}
