/**
 * PGlite that parses each statement once, as a connection with prepared statements does. PGlite's
 * own `query` parses and plans each time and makes six calls into WebAssembly; this makes one.
 * For the simulation, which executes the same two hundred statements millions of times.
 */
import { type PGlite, protocol, type Results } from '@electric-sql/pglite';

const { serialize, messages } = protocol;

type Message = Awaited<ReturnType<PGlite['execProtocolStream']>>[number];

interface Prepared {
  name: string;
  /** Makes the text of each parameter. */
  serializers: readonly (((value: unknown) => string) | undefined)[];
  columns: readonly { name: string; parse: ((text: string, type: number) => unknown) | undefined; type: number }[];
}

const COUNTED = ['INSERT', 'UPDATE', 'DELETE', 'MERGE'];
/** Without the file system, which is in memory. */
const OPTIONS = { syncToFs: false };

export class PreparedPglite {
  readonly #pglite: PGlite;
  readonly #prepared = new Map<string, Prepared>();

  constructor(pglite: PGlite) {
    this.#pglite = pglite;
  }

  /** One statement. The caller sees to it that no transaction is open. */
  query<Row>(text: string, values: readonly unknown[] = []): Promise<Results<Row>> {
    return this.#pglite.runExclusive(async () => {
      const { name, serializers, columns } = this.#prepared.get(text) ?? (await this.#prepare(text));
      const texts = values.map((value, index) => textOf(value, serializers[index]));
      const answer = await this.#send(
        serialize.bind({ statement: name, values: texts }),
        serialize.execute({}),
        serialize.sync(),
      );
      const rows: Row[] = [];
      let affectedRows = 0;
      for (const message of answer) {
        if (message instanceof messages.DataRowMessage) rows.push(rowOf<Row>(message.fields, columns));
        else if (message instanceof messages.CommandCompleteMessage) affectedRows += countOf(message.text);
      }
      return { rows, affectedRows, fields: columns.map((column) => ({ name: column.name, dataTypeID: column.type })) };
    });
  }

  /** One or several statements, without values. */
  async exec(text: string): Promise<Results[]> {
    return text.includes(';') ? this.#pglite.exec(text) : [await this.query<Record<string, unknown>>(text)];
  }

  transaction: PGlite['transaction'] = (work) => this.#pglite.transaction(work);

  close(): Promise<void> {
    return this.#pglite.close();
  }

  /** Statements are prepared anew from here on. */
  async forget(): Promise<void> {
    this.#prepared.clear();
    await this.#pglite.exec('deallocate all; discard plans');
  }

  async #prepare(text: string): Promise<Prepared> {
    const name = `s${this.#prepared.size}`;
    const answer = await this.#send(
      serialize.parse({ name, text }),
      serialize.describe({ type: 'S', name }),
      serialize.sync(),
    );
    let types: number[] = [];
    let columns: Prepared['columns'] = [];
    for (const message of answer) {
      if (message instanceof messages.ParameterDescriptionMessage) types = message.dataTypeIDs;
      else if (message instanceof messages.RowDescriptionMessage) {
        columns = message.fields.map((field) => ({
          name: field.name,
          type: field.dataTypeID,
          parse: this.#pglite.parsers[field.dataTypeID],
        }));
      }
    }
    const prepared = { name, columns, serializers: types.map((type) => this.#pglite.serializers[type]) };
    this.#prepared.set(text, prepared);
    return prepared;
  }

  #send(...parts: Uint8Array[]): Promise<Message[]> {
    return this.#pglite.execProtocolStream(Buffer.concat(parts), OPTIONS);
  }
}

function textOf(value: unknown, serializer: Prepared['serializers'][number]): string | null {
  if (value === null || value === undefined) return null;
  return serializer === undefined ? String(value) : serializer(value);
}

function rowOf<Row>(fields: readonly (string | null)[], columns: Prepared['columns']): Row {
  const row: Record<string, unknown> = {};
  for (const [index, { name, parse, type }] of columns.entries()) {
    const text = fields[index] ?? null;
    row[name] = text === null || parse === undefined ? text : parse(text, type);
  }
  return row as Row;
}

function countOf(commandTag: string): number {
  const words = commandTag.split(' ');
  return COUNTED.includes(words[0] ?? '') ? Number(words.at(-1)) : 0;
}
