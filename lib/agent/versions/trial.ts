/**
 * Whether a new version of the agent has come up: it has a session with an instance that lasts for
 * a while. Owned by the agent's main.ts while the record of versions says `trial`; the launcher
 * rolls the version back unless `confirm` is called in time.
 */
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { VersionsFile } from './versions-file.ts';

/** What the agent sends to its launcher once the record says that its version is confirmed. */
export const CONFIRMED = 'confirmed';

/**
 * What the agent sends to its launcher when it stops so that the launcher starts a staged version.
 */
export const STAGED = 'staged';

interface TrialDeps {
  versions: VersionsFile;
  log: Logger;
  /** A session must last for this long. */
  stayMs: number;
  /** Tells the launcher. */
  tell(message: typeof CONFIRMED): void;
}

export class Trial {
  readonly #deps: TrialDeps;
  #liveSince: number | undefined;
  #confirming = false;
  readonly #confirmed = Promise.withResolvers<void>();

  constructor(deps: TrialDeps) {
    this.#deps = deps;
  }

  /** Resolves when the version is confirmed on disk. */
  get confirmed(): Promise<void> {
    return this.#confirmed.promise;
  }

  /** @param isLive whether the agent has a session now */
  tick(now: number, isLive: boolean): void {
    if (this.#confirming) return;
    if (!isLive) this.#liveSince = undefined;
    else this.#liveSince ??= now;
    if (this.#liveSince === undefined || now - this.#liveSince < this.#deps.stayMs) return;
    this.#confirming = true;
    void this.#confirm();
  }

  async #confirm(): Promise<void> {
    const { versions, log, tell } = this.#deps;
    try {
      const { current } = await versions.step({ type: 'confirm' });
      log.info({ version: current?.version }, 'agent: this version is confirmed');
      tell(CONFIRMED);
      this.#confirmed.resolve();
    } catch (error) {
      // The launcher rolls it back, or a later tick succeeds.
      log.error({ reason: messageOf(error) }, 'agent: this version cannot be confirmed');
      this.#confirming = false;
      this.#liveSince = undefined;
    }
  }
}
