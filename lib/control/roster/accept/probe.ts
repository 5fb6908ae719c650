/**
 * Asks whether another incarnation of a server uuid is alive. Its session is probed for one second,
 * here or, by bus, at the run that has it. Only an answer from a living session is a reason to
 * refuse the new agent; silence, or no bus, is not (law 1: a refusal may rest on an answer by bus,
 * an accept never).
 */
import type { Bus, Subscription } from '../../../platform/bus/bus.ts';
import type { Random } from '../../../platform/random.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import { runTopic } from '../../run-topic.ts';
import type { RunMessage } from '../run-message.ts';
import type { SessionTable } from '../sessions/session.ts';

interface ProbeDeps {
  bus: Bus;
  sessions: SessionTable;
  run: () => string;
  healthyTimer: Pick<HealthyTimer, 'after'>;
  random: Random;
}

const PROBE_MS = 1000;

export interface ProbeTarget {
  run: string;
  epoch: number;
}

export class ProbeCaller {
  readonly #deps: ProbeDeps;

  constructor(deps: ProbeDeps) {
    this.#deps = deps;
  }

  /**
   * True only if the session of that epoch answered, within a second, a probe that was sent after
   * this call.
   */
  isAlive(serverUuid: string, target: ProbeTarget): Promise<boolean> {
    return target.run === this.#deps.run()
      ? this.#askHere(serverUuid, target.epoch)
      : this.#askThere(serverUuid, target);
  }

  /** Answers another instance that asks about a session of this one. */
  async answer(message: Extract<RunMessage, { kind: 'probe' }>): Promise<void> {
    if (await this.#askHere(message.server_uuid, message.epoch)) this.#deps.bus.publish(message.reply, { alive: true });
  }

  async #askHere(serverUuid: string, epoch: number): Promise<boolean> {
    const session = this.#deps.sessions.get(serverUuid);
    if (session === undefined || session.epoch !== epoch || session.isEnded) return false;
    return session.socket.answersProbe(PROBE_MS);
  }

  #askThere(serverUuid: string, { run, epoch }: ProbeTarget): Promise<boolean> {
    const { bus, healthyTimer, random } = this.#deps;
    const reply = `probe:${random.uuid()}`;
    return new Promise((resolve) => {
      const finish = (isAlive: boolean) => {
        timer.cancel();
        subscription.close();
        resolve(isAlive);
      };
      const timer = healthyTimer.after(PROBE_MS, () => finish(false));
      const subscription: Subscription = bus.subscribe(
        reply,
        (message) => message.alive === true && finish(true),
        () => bus.publish(runTopic(run), { kind: 'probe', server_uuid: serverUuid, epoch, reply } satisfies RunMessage),
      );
    });
  }
}
