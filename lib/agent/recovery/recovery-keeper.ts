/**
 * Keeps the recovery configurations of the server in the agent's data directory, which only the
 * agent reads, and says in sysinfo which ones there are. The task `recovery_config` calls it, one
 * at a time. This agent uses them for nothing: what unlocks the zpool reads the file of the active
 * one.
 */
import { CnapiError } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { deriveRecoveryUuid, templateDigest } from '../../protocol/recovery.ts';
import type { RecordFiles } from '../records/record-files.ts';
import {
  type RecoveryConfig,
  type RecoveryEvent,
  type RecoveryRefusal,
  type RecoverySlot,
  type RecoveryState,
  slotsOf,
  stateOf,
  stepRecovery,
} from './recovery.ts';

interface RecoveryRecord {
  slot: RecoverySlot;
  config: RecoveryConfig;
}

interface RecoveryKeeperDeps {
  /** Named by their slots. */
  files: RecordFiles<RecoveryRecord>;
  log: Logger;
}

export const slotOf = ({ slot }: RecoveryRecord): string | undefined =>
  slot === 'active' || slot === 'staged' ? slot : undefined;

/** The template is not that of the uuid. It may have been damaged on its way. */
class RecoveryMismatchError extends CnapiError {
  constructor(uuid: string) {
    super('RecoveryMismatch', 409, `The template is not that of recovery configuration ${uuid}`);
  }
}

class RecoveryRefusedError extends CnapiError {
  constructor(uuid: string, refusal: RecoveryRefusal) {
    super('RecoveryRefused', 409, `Recovery configuration ${uuid} is ${refusal} on this server`);
  }
}

export class RecoveryKeeper {
  readonly #deps: RecoveryKeeperDeps;
  readonly #listeners = new Set<() => void>();
  #state: RecoveryState;

  private constructor(deps: RecoveryKeeperDeps, state: RecoveryState) {
    this.#deps = deps;
    this.#state = state;
  }

  static async open(deps: RecoveryKeeperDeps): Promise<RecoveryKeeper> {
    const { records, damaged } = await deps.files.load();
    for (const { id, reason } of damaged)
      deps.log.error({ slot: id, reason }, 'recovery: the configuration cannot be read; stage it again');
    const found = new Map(records.map(({ slot, config }) => [slot, config]));
    const state = stateOf({ active: found.get('active'), staged: found.get('staged') });
    // An activation was cut off.
    if (state.name === 'active' && found.has('staged')) await deps.files.remove('staged');
    return new RecoveryKeeper(deps, state);
  }

  /** What sysinfo says, under the names of Triton. */
  get sysinfo(): Record<string, unknown> {
    const { active, staged } = slotsOf(this.#state);
    const digests = { ...(active && { active: active.digest }), ...(staged && { staged: staged.digest }) };
    return { 'Zpool Encrypted': true, 'Zpool Recovery': digests };
  }

  /** @throws RecoveryMismatchError, RecoveryRefusedError */
  async stage(given: Omit<RecoveryConfig, 'digest'>): Promise<void> {
    const digest = templateDigest(given.template);
    if (deriveRecoveryUuid(digest) !== given.uuid) throw new RecoveryMismatchError(given.uuid);
    await this.#step(given.uuid, { type: 'stage', config: { ...given, digest } });
  }

  /** @throws RecoveryRefusedError */
  async activate(uuid: string): Promise<void> {
    await this.#step(uuid, { type: 'activate', uuid });
  }

  /** Returns what ends the calls. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #step(uuid: string, event: RecoveryEvent): Promise<void> {
    const step = stepRecovery(this.#state, event);
    if ('refusal' in step) throw new RecoveryRefusedError(uuid, step.refusal);
    for (const effect of step.effects) {
      if (effect.do === 'write') await this.#deps.files.write({ slot: effect.slot, config: effect.config });
      else await this.#deps.files.remove(effect.slot);
    }
    this.#state = step.state;
    if (step.effects.length === 0) return;
    this.#deps.log.info({ recovery_uuid: uuid, event: event.type, to: step.state.name }, 'recovery: changed');
    for (const listener of this.#listeners) listener();
  }
}
