/**
 * Reads what `zfs` and `zpool` print with -H: a line for each dataset, and tabs between its fields.
 * All values are texts, as in the answers of Triton's agent. Pure.
 */
import { MAX_RESULT_VALUES } from '../../protocol/limits.ts';
import { ZfsError } from './zfs-error.ts';

/** Space left for values in a task's result, without its envelope. */
const MAX_VALUES = MAX_RESULT_VALUES - 100;

/**
 * The lines of a list with these fields. @throws ZfsError if the result of a task cannot hold them
 */
export function parseList<Field extends string>(
  text: string,
  fields: readonly Field[],
  { narrower }: { narrower: string },
): Record<Field, string>[] {
  const lines = linesOf(text);
  checkRoom(lines.length * (2 * fields.length + 1), { narrower });
  return lines.map((line) => {
    const values = line.split('\t');
    if (values.length !== fields.length)
      throw new ZfsError('ZfsFailed', `ZFS printed a line with ${values.length} fields instead of ${fields.length}`);
    return Object.fromEntries(fields.map((field, index) => [field, values[index]])) as Record<Field, string>;
  });
}

/**
 * Properties by dataset, from lines of name, property and value. A value may have tabs and lines of
 * its own: what has no name and no property continues the value before. @throws ZfsError
 */
export function parseProperties(
  text: string,
  { narrower }: { narrower: string },
): Record<string, Record<string, string>> {
  const byDataset = new Map<string, Map<string, string>>();
  let last: { of: Map<string, string>; property: string } | undefined;
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const [name, property, ...value] = line.split('\t');
    if (name !== undefined && property !== undefined && value.length > 0) {
      const properties = byDataset.get(name) ?? new Map<string, string>();
      byDataset.set(name, properties.set(property, value.join('\t')));
      last = { of: properties, property };
    } else if (last !== undefined) last.of.set(last.property, `${last.of.get(last.property)}\n${line}`);
    else if (line !== '') throw new ZfsError('ZfsFailed', 'ZFS printed a line that has no property');
  }
  const values = [...byDataset.values()].reduce((sum, { size }) => sum + 2 + 2 * size, 0);
  checkRoom(values, { narrower });
  return Object.fromEntries([...byDataset].map(([name, properties]) => [name, Object.fromEntries(properties)]));
}

/** What a program says about its failure, without the text of its usage. */
export function failureText(stderr: string, { exitCode }: { exitCode: number | null }): string {
  const [said] = stderr.split(/\nusage:/, 1);
  const text = (said ?? '').trim().replaceAll(/\s*\n\s*/g, '; ');
  return text === '' ? `ZFS ended with exit code ${exitCode}` : text.slice(0, MAX_FAILURE_CHARS);
}

const MAX_FAILURE_CHARS = 1000;

function checkRoom(values: number, { narrower }: { narrower: string }): void {
  if (values > MAX_VALUES) throw tooLarge(narrower);
}

export const tooLarge = (narrower: string) =>
  new ZfsError('ZfsOutputTooLarge', `The list is longer than an answer may be; ${narrower}`);

const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '');
