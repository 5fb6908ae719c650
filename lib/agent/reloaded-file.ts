/**
 * A small file that is read again whenever it has changed, so it can be replaced without a restart.
 * Used by credentials.ts, http-access.ts and allow-list.ts.
 */
import { readFileSync, statSync } from 'node:fs';
import { messageOf } from '../platform/errors.ts';

interface KeptFileDeps<Value> {
  path: string;
  maxBytes: number;
  /** Only its owner may be able to read it. */
  isSecret: boolean;
  /** @throws what is wrong with the text, without quoting it */
  parse(text: string): Value;
  /** Receives once why a changed file cannot be used; the previous value stays. */
  complain(message: string): void;
}

const ABSENT = 'absent';

export class ReloadedFile<Value> {
  readonly #deps: KeptFileDeps<Value>;
  #readAs: string | undefined;
  #value: Value | undefined;

  constructor(deps: KeptFileDeps<Value>) {
    this.#deps = deps;
  }

  /** Reads the file. @throws Error naming the file when it cannot be used */
  load(): Value {
    const { path, maxBytes, isSecret, parse } = this.#deps;
    try {
      this.#readAs = looksOf(path);
      const { size, mode } = statSync(path);
      if (isSecret && (mode & 0o077) !== 0)
        throw new Error(`others may read it (mode ${(mode & 0o777).toString(8)}); chmod 600 it`);
      if (size > maxBytes) throw new Error(`it is larger than ${maxBytes} bytes`);
      this.#value = parse(readFileSync(path, 'utf8'));
      return this.#value;
    } catch (cause) {
      throw new Error(`${path} cannot be used: ${messageOf(cause)}`, { cause });
    }
  }

  /** The newest usable value; undefined when there has been none. */
  read(): Value | undefined {
    const looks = looksOf(this.#deps.path);
    const isUnchanged = looks === this.#readAs;
    this.#readAs = looks;
    if (isUnchanged || (looks === ABSENT && this.#value === undefined)) return this.#value;
    try {
      return this.load();
    } catch (error) {
      this.#deps.complain(messageOf(error));
      return this.#value;
    }
  }
}

function looksOf(path: string): string {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat ? `${stat.ino} ${stat.size} ${stat.mtimeMs} ${stat.ctimeMs}` : ABSENT;
  } catch (error) {
    // Such as a directory that became unreadable. Reading the file then fails as well, and says
    // why.
    return messageOf(error);
  }
}
