/**
 * Which servers count as dead, and when, because a test kills, freezes or cuts off their agents.
 * Pure. Used by the witness.
 */
interface Excuse {
  serverUuid: string;
  from: number;
  /** Epoch of the session that the fault is to end. */
  epoch: number;
  /** When the server was seen `running` again under a higher epoch, and that epoch. */
  to: number;
  nextEpoch: number;
}

/** An instance may answer with what it read this long before. */
const OLD_ANSWER_MS = 1000;

export class Excuses {
  readonly #all: Excuse[] = [];

  begin(serverUuid: string, { from, epoch }: { from: number; epoch: number }): void {
    const end = Number.POSITIVE_INFINITY;
    this.#all.push({ serverUuid, from, epoch, to: end, nextEpoch: end });
  }

  /** Epoch of the last session that a fault is to end. */
  lastEpoch(serverUuid: string): number {
    return Math.max(...this.#of(serverUuid).map(({ epoch }) => epoch));
  }

  /** The server is back, under this epoch. */
  end(serverUuid: string, { at, epoch }: { at: number; epoch: number }): void {
    for (const excuse of this.#of(serverUuid)) {
      if (excuse.to < Number.POSITIVE_INFINITY) continue;
      excuse.to = at;
      excuse.nextEpoch = epoch;
    }
  }

  /** An instance that was asked meanwhile may say that the server is not `running`. */
  coverAnswer(serverUuid: string, askedAt: number, answeredAt: number): boolean {
    return this.#of(serverUuid).some(({ from, to }) => from <= answeredAt && askedAt <= to + OLD_ANSWER_MS);
  }

  /**
   * The server may have become `unknown` at this time, if that is the end of a session before its
   * return.
   */
  coverChange(serverUuid: string, { at, epoch }: { at: number; epoch: number }): boolean {
    return this.#of(serverUuid).some(({ from, to, nextEpoch }) => from <= at && at <= to && epoch < nextEpoch);
  }

  #of(serverUuid: string): Excuse[] {
    return this.#all.filter((excuse) => excuse.serverUuid === serverUuid);
  }
}
