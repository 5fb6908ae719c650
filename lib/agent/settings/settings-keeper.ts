/**
 * Keeps in the agent's data directory whether this server is set up, and the NIC tags of its NICs,
 * and says both in the machine's sysinfo. The tasks `server_setup`, `server_factory_reset` and
 * `server_update_nics` call it, one at a time. It changes nothing of the machine.
 */
import type { Logger } from '../../platform/log.ts';
import type { NicAction, NicChange } from '../../protocol/nics.ts';
import type { Sysinfo } from '../machine/machine.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { TaskFailure } from '../task-failure.ts';
import { changeNicTags, type NicTags, presentNicTags, withSettings } from './settings.ts';

type SettingsRecord = { slot: 'setup'; isSetUp: boolean } | { slot: 'nic-tags'; tags: NicTags };

interface SettingsKeeperDeps {
  /** Named by their slots. */
  files: Pick<RecordFiles<SettingsRecord>, 'load' | 'write'>;
  /** A server without a record of its set-up is not set up. */
  needsSetup: boolean;
  log: Logger;
}

export const settingsSlotOf = ({ slot }: SettingsRecord): string | undefined =>
  slot === 'setup' || slot === 'nic-tags' ? slot : undefined;

export class SettingsKeeper {
  readonly #deps: SettingsKeeperDeps;
  readonly #listeners = new Set<() => void>();
  #tags: NicTags = {};
  /** Undefined: its record is damaged, so the instances keep what they know. */
  #isSetUp: boolean | undefined;

  private constructor(deps: SettingsKeeperDeps) {
    this.#deps = deps;
    this.#isSetUp = !deps.needsSetup;
  }

  static async open(deps: SettingsKeeperDeps): Promise<SettingsKeeper> {
    const keeper = new SettingsKeeper(deps);
    const { records, damaged } = await deps.files.load();
    for (const record of records) keeper.#take(record);
    for (const { id, reason } of damaged) {
      if (id === 'setup') keeper.#isSetUp = undefined;
      deps.log.error(
        { setting: id, reason },
        'settings: the record cannot be read; set up the server or its NICs again',
      );
    }
    return keeper;
  }

  /** For a simulated server, which has no disk. */
  static inMemory(deps: Omit<SettingsKeeperDeps, 'files'>): SettingsKeeper {
    const files = { load: async () => ({ records: [], damaged: [] }), write: async () => undefined };
    return new SettingsKeeper({ ...deps, files });
  }

  get isSetUp(): boolean | undefined {
    return this.#isSetUp;
  }

  /** The sysinfo of the machine with what is kept here. */
  complete(sysinfo: Sysinfo): Sysinfo {
    return withSettings(sysinfo, { tags: this.#tags, isSetUp: this.#isSetUp });
  }

  setSetUp(isSetUp: boolean): Promise<void> {
    return this.#keep({ slot: 'setup', isSetUp });
  }

  /**
   * @throws TaskFailure for a NIC that the machine does not have, and for one that would have too
   * many tags
   */
  async changeNics(action: NicAction, nics: readonly NicChange[], sysinfo: Sysinfo): Promise<NicTags> {
    const change = changeNicTags(this.#tags, { action, nics, present: presentNicTags(sysinfo) });
    if (!('tags' in change)) throw refusedNic(change);
    await this.#keep({ slot: 'nic-tags', tags: change.tags });
    return change.tags;
  }

  /** Forgets the NIC tags, and the server is not set up. */
  async reset(): Promise<void> {
    await this.setSetUp(false);
    await this.#keep({ slot: 'nic-tags', tags: {} });
  }

  /** Returns what ends the calls. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #keep(record: SettingsRecord): Promise<void> {
    await this.#deps.files.write(record);
    this.#take(record);
    this.#deps.log.info(record, 'settings: changed');
    for (const listener of this.#listeners) listener();
  }

  #take(record: SettingsRecord): void {
    if (record.slot === 'setup') this.#isSetUp = record.isSetUp;
    else this.#tags = record.tags;
  }
}

const refusedNic = ({ refusal, mac }: { refusal: 'unknown' | 'full'; mac: string }): TaskFailure =>
  refusal === 'unknown'
    ? new TaskFailure('NicNotFound', `This server has no NIC with the address ${mac}; its sysinfo names those it has`)
    : new TaskFailure('TooManyNicTags', `The NIC ${mac} would have too many NIC tags; delete some`);
