/**
 * The boot parameters of servers, and the defaults that new servers copy: reads and changes them,
 * and adds what every server that boots is told. A change reads the document, decides, and writes
 * if nobody wrote meanwhile. Called by `boot-routes.ts`.
 */
import { CnapiError } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { BucketStore } from '../../../platform/moray/bucket-store.ts';
import { EtagConflictError } from '../../../platform/moray/moray-errors.ts';
import type { BrokerAddress } from '../../../platform/network/broker-address.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { latestPlatform } from '../../../protocol/api/documents/platforms.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import { canonicalJson } from '../../../protocol/json/canonical-json.ts';
import { DEFAULTS_KEY, INITIAL_DEFAULTS, type ServerDefaults, type ServerDocument } from '../server.ts';
import { serversBucket } from '../server-bucket.ts';
import { ServerNotFoundError } from '../servers.ts';
import { type BootChange, mergeBoot, replaceBoot, toBootParams, withoutBootSecrets } from './boot-parameters.ts';
import { BrokerArguments } from './broker-arguments.ts';

interface BootDeps {
  buckets: BucketStore;
  platforms: { names(): Promise<readonly string[]> };
  config: { smtEnabled: boolean; broker: BrokerAddress | undefined };
  clock: Clock;
  log: Logger;
}

/** The counts in Triton's answer to `PUT /boot/:server_uuid`. */
interface WriteStats {
  getObjectAttempts: number;
  getObjectErrors: number;
  getObjectNotFound: number;
  putObjectAttempts: number;
  putObjectErrors: number;
  putObjectEtagErrors: number;
}

/** Triton's CNAPI retries as often. */
const ETAG_RETRIES = 10;

/** Triton's status for it. */
class UnknownPlatformError extends CnapiError {
  constructor(message: string) {
    super('InternalError', 500, message);
  }
}

export class Boot {
  readonly #deps: BootDeps;
  readonly #broker: BrokerArguments | undefined;

  constructor(deps: BootDeps) {
    this.#deps = deps;
    const { broker } = deps.config;
    this.#broker = broker && new BrokerArguments(broker, deps);
  }

  /**
   * What a server that boots gets. `hidesSecrets`: as those see it who may not change it. @throws
   * ServerNotFoundError
   */
  async paramsOf(serverUuid: string, { hidesSecrets }: { hidesSecrets: boolean }) {
    const document = await this.#read(serverUuid);
    if (document === undefined) throw new ServerNotFoundError(serverUuid);
    return this.#shown(document.value, { hostname: document.value.hostname }, hidesSecrets);
  }

  /**
   * The boot parameters of a server that is not known yet. If the record of the defaults was
   * deleted, the initial values.
   */
  async defaults({ hidesSecrets }: { hidesSecrets: boolean }) {
    const fields = { ...INITIAL_DEFAULTS, ...(await this.#read(DEFAULTS_KEY))?.value };
    const { smtEnabled } = this.#deps.config;
    return this.#shown(fields, 'smt_enabled' in fields.boot_params ? {} : { smt_enabled: smtEnabled }, hidesSecrets);
  }

  /** @throws ServerNotFoundError, InvalidArgumentError, UnknownPlatformError, EtagConflictError */
  async replace(key: string, change: BootChange): Promise<WriteStats> {
    await this.#checkPlatform(change.platform);
    const latest = change.platform ?? latestPlatform(await this.#deps.platforms.names()) ?? '';
    return this.#change(key, () => replaceBoot(change, latest));
  }

  /** @throws ServerNotFoundError, InvalidArgumentError, UnknownPlatformError, EtagConflictError */
  async merge(key: string, change: BootChange): Promise<WriteStats> {
    await this.#checkPlatform(change.platform);
    return this.#change(key, (before) => mergeBoot(before, change));
  }

  /** For an update of a server. An empty name is none. @throws UnknownPlatformError */
  async checkPlatformImage(name: string | undefined): Promise<void> {
    if (!(await this.#knows(name)))
      throw new UnknownPlatformError(`failed to find given platform image, ${String(name).slice(0, 100)}`);
  }

  async #checkPlatform(name: string | undefined): Promise<void> {
    if (!(await this.#knows(name)))
      throw new UnknownPlatformError(`Platform '${String(name).slice(0, 100)}' does not exist`);
  }

  async #knows(name: string | undefined): Promise<boolean> {
    return name === undefined || name === '' || (await this.#deps.platforms.names()).includes(name);
  }

  async #read(key: string) {
    return (await this.#deps.buckets.getMany<ServerDocument>(serversBucket, [key])).get(key);
  }

  async #shown(fields: ServerDefaults, own: JsonObject, hidesSecrets: boolean) {
    if (hidesSecrets) return toBootParams(withoutBootSecrets(fields), own);
    return toBootParams(fields, { ...own, ...(await this.#broker?.read()) });
  }

  async #change(key: string, decide: (before: ServerDefaults) => ServerDefaults): Promise<WriteStats> {
    const stats: WriteStats = {
      getObjectAttempts: 0,
      getObjectErrors: 0,
      getObjectNotFound: 0,
      putObjectAttempts: 0,
      putObjectErrors: 0,
      putObjectEtagErrors: 0,
    };
    for (;;) {
      stats.getObjectAttempts++;
      const stored = await this.#read(key);
      if (stored === undefined) stats.getObjectNotFound++;
      if (stored === undefined && key !== DEFAULTS_KEY) throw new ServerNotFoundError(key);
      const before = { ...INITIAL_DEFAULTS, ...stored?.value };
      const after = { ...stored?.value, ...decide(before) };
      if (stored !== undefined && canonicalJson(stored.value) === canonicalJson(after)) return stats;
      stats.putObjectAttempts++;
      try {
        await this.#deps.buckets.put(serversBucket, key, after, { etag: stored?.etag ?? null });
        this.#deps.log.info({ server_uuid: key }, 'boot: parameters changed');
        return stats;
      } catch (error) {
        if (!(error instanceof EtagConflictError) || stats.putObjectEtagErrors === ETAG_RETRIES) throw error;
        stats.putObjectEtagErrors++;
      }
    }
  }
}
