/**
 * A long list, read and serialized chunk by chunk. It serves lists whose callers take a page with
 * fewer rows than `limit` for the last one: such a page may not end early, and must not be held in
 * memory as a whole. Each chunk is one statement that continues after the last row by key; no
 * transaction and no lock is open while the caller reads. The size of earlier chunks bounds a
 * chunk's rows, and the statement itself bounds its bytes. Created by a route's handler, written by
 * `exchange.ts`.
 */
import type { RowText } from '../route.ts';

interface Chunk<Row, Cursor> {
  rows: readonly Row[];
  /** Where the next chunk starts; undefined after the last row. */
  next: Cursor | undefined;
}

interface ChunkSize {
  rows: number;
  /** Limit for the wide columns, uncompressed; the first row is returned whatever its size. */
  bytes: number;
}

interface RowSource<Row, Cursor> {
  limit: number;
  /** Default: a few rows, which show how large rows are. Larger if rows are known to be small. */
  firstChunk?: ChunkSize | undefined;
  read(after: Cursor | undefined, size: ChunkSize): Promise<Chunk<Row, Cursor>>;
}

type RowAnswer =
  | { status: 200; rows: { first: string; rest: AsyncIterator<RowText> } }
  | { status: 200; text: { contentType: string; content: string } };

/** Answer memory of a row stream: rows, their text, the part not sent yet, and the next rows. */
export const ROW_STREAM_BYTES = 1024 * 1024;
const CHUNK_BYTES = ROW_STREAM_BYTES / 4;
const FIRST_CHUNK: ChunkSize = { rows: 16, bytes: CHUNK_BYTES };
const MAX_ROWS = 500;

/**
 * The answer: complete if one chunk is all, else a stream. @throws what reading the first chunk
 * throws
 */
export async function answerRows<Row, Cursor>(source: RowSource<Row, Cursor>): Promise<RowAnswer> {
  const texts = readTexts(source);
  const first = await texts.next();
  if (first.done !== true && !first.value.isLast)
    return { status: 200, rows: { first: first.value.text, rest: texts } };
  const content = `[${first.done === true ? '' : first.value.text}]`;
  return { status: 200, text: { contentType: 'application/json', content } };
}

/**
 * Each chunk is read while the one before it is serialized and sent, so that the database and this
 * process work at the same time. The second waits for the first, whose text shows how large rows
 * are.
 */
async function* readTexts<Row, Cursor>(source: RowSource<Row, Cursor>): AsyncGenerator<RowText, undefined> {
  const { limit, read, firstChunk = FIRST_CHUNK } = source;
  let left = limit;
  let size = firstChunk;
  const readFrom = (cursor: Cursor | undefined) => {
    const reading = read(cursor, { rows: Math.min(size.rows, left), bytes: size.bytes });
    // Nobody waits for it if the caller goes away.
    reading.catch(() => {});
    return reading;
  };
  const readNext = ({ rows, next }: Chunk<Row, Cursor>) => {
    left -= rows.length;
    return next === undefined || left <= 0 ? undefined : readFrom(next);
  };
  const textOf = ({ rows }: Chunk<Row, Cursor>) => {
    const text = JSON.stringify(rows).slice(1, -1);
    const fitting = Math.floor((rows.length * CHUNK_BYTES) / Math.max(1, text.length));
    size = { rows: Math.max(1, Math.min(MAX_ROWS, fitting)), bytes: CHUNK_BYTES };
    return text;
  };
  let chunk = await readFrom(undefined);
  let text = textOf(chunk);
  let reading = readNext(chunk);
  while (reading !== undefined) {
    yield { text, isLast: false };
    chunk = await reading;
    reading = readNext(chunk);
    text = textOf(chunk);
  }
  yield { text, isLast: true };
}
