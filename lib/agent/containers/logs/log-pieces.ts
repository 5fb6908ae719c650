/**
 * Entries of a log as the bytes that the program wrote. Pure. However many lines there are, a list
 * of entries gives a bounded number of pieces: each costs every machine on its way more than a
 * line.
 */
import type { LogEntry } from './log-parser.ts';

interface LogPiece {
  stream: LogEntry['stream'];
  bytes: Buffer;
}

/**
 * Maximum number of groups of one list. A group gives two pieces if it has entries of both streams.
 */
const MAX_GROUPS = 32;

/**
 * Lines keep their order. Only where the streams alternate more often than MAX_GROUPS times, the
 * order of lines of different streams is kept for groups of lines.
 */
export function splitIntoPieces(entries: readonly LogEntry[]): LogPiece[] {
  const runs = entries.filter(({ stream }, index) => stream !== entries[index - 1]?.stream).length;
  const size = runs <= MAX_GROUPS ? 1 : Math.ceil(entries.length / MAX_GROUPS);
  const texts: { stream: LogEntry['stream']; parts: string[] }[] = [];
  for (let start = 0; start < entries.length; start += size) {
    const group = entries.slice(start, start + size);
    for (const stream of ['stdout', 'stderr'] as const) {
      const parts = group.filter((entry) => entry.stream === stream).map(textOf);
      const last = texts.at(-1);
      if (parts.length === 0) continue;
      if (last?.stream === stream) last.parts.push(...parts);
      else texts.push({ stream, parts });
    }
  }
  return texts.map(({ stream, parts }) => ({ stream, bytes: Buffer.from(parts.join('')) }));
}

const textOf = ({ text, isPartial }: LogEntry): string => (isPartial ? text : `${text}\n`);
