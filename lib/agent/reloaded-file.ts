/**
 * A small file that is read again whenever it has changed, so it can be replaced without a restart.
 * Used by credentials.ts, http-access.ts and allow-list.ts.
 */
import { closeSync, fstatSync, openSync, readFileSync, type Stats, statSync } from 'node:fs';
import { messageOf } from '../platform/errors.ts';

interface KeptFileDeps<Value> {
  path: string;
  maxBytes: number;
  /**
   * `secret`: only its owner may be able to read it. `trusted`: only root and the agent's user may
   * be able to change it; while others may, there is no value.
   */
  protection: 'secret' | 'trusted' | 'none';
  /** @throws what is wrong with the text, without quoting it */
  parse(text: string): Value;
  /** Receives once why a changed file cannot be used, and whether the previous value stays. */
  complain(message: string, isKept: boolean): void;
}

const ABSENT = 'absent';

class UntrustedFileError extends Error {}

export class ReloadedFile<Value> {
  readonly #deps: KeptFileDeps<Value>;
  #readAs: string | undefined;
  #value: Value | undefined;
  #failure: string | undefined;

  constructor(deps: KeptFileDeps<Value>) {
    this.#deps = deps;
  }

  /** Reads the file. @throws Error naming the file when it cannot be used */
  load(): Value {
    const { path, parse } = this.#deps;
    try {
      this.#readAs = looksOf(path);
      this.#value = parse(this.#text());
      this.#failure = undefined;
      return this.#value;
    } catch (cause) {
      if (cause instanceof UntrustedFileError) this.#value = undefined;
      this.#failure = `${path} cannot be used: ${messageOf(cause)}`;
      throw new Error(this.#failure, { cause });
    }
  }

  /** Why there is no value. */
  get failureReason(): string {
    return this.#failure ?? `${this.#deps.path} does not exist`;
  }

  /** The newest usable value; undefined when there is none. */
  read(): Value | undefined {
    const looks = looksOf(this.#deps.path);
    const isUnchanged = looks === this.#readAs;
    this.#readAs = looks;
    if (isUnchanged) return this.#value;
    if (looks === ABSENT && this.#value === undefined) {
      this.#failure = undefined;
      return undefined;
    }
    try {
      return this.load();
    } catch (error) {
      this.#deps.complain(messageOf(error), this.#value !== undefined);
      return this.#value;
    }
  }

  /** Checks the open file that it reads, even if another file takes the path meanwhile. */
  #text(): string {
    const { path, maxBytes, protection } = this.#deps;
    const file = openSync(path, 'r');
    try {
      const stat = fstatSync(file);
      if (protection === 'secret' && (stat.mode & 0o077) !== 0)
        throw new Error(`others may read it (mode ${modeOf(stat)}); chmod 600 it`);
      const reason = protection === 'trusted' ? reasonNotTrusted(stat, process.geteuid?.()) : undefined;
      if (reason !== undefined) throw new UntrustedFileError(reason);
      if (stat.size > maxBytes) throw new Error(`it is larger than ${maxBytes} bytes`);
      return readFileSync(file, 'utf8');
    } finally {
      closeSync(file);
    }
  }
}

/** Why somebody other than root and the agent's user may change a file. */
export function reasonNotTrusted(stat: Pick<Stats, 'uid' | 'mode'>, ownUid: number | undefined): string | undefined {
  if (stat.uid !== 0 && stat.uid !== ownUid)
    return `its owner (uid ${stat.uid}) is neither root nor the agent's user; chown it`;
  if ((stat.mode & 0o022) !== 0) return `its group or others may write it (mode ${modeOf(stat)}); chmod go-w it`;
  return undefined;
}

const modeOf = ({ mode }: Pick<Stats, 'mode'>): string => (mode & 0o777).toString(8);

function looksOf(path: string): string {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat ? `${stat.ino} ${stat.size} ${stat.mtimeMs} ${stat.ctimeMs}` : ABSENT;
  } catch (error) {
    // For example, a directory became unreadable. Reading the file then fails as well, and reports
    // the reason.
    return messageOf(error);
  }
}
