/** A mutant: the product with one small change that a test should detect. Pure. */
import { createHash } from 'node:crypto';

export interface Edit {
  /** Offsets in the source file. */
  from: number;
  to: number;
  is: string;
  /** Describes the change for people. */
  kind: string;
}

export interface Mutant extends Edit {
  /** Stays the same as long as the file and the change do. */
  id: string;
  /** Path from the root. */
  file: string;
  line: number;
  was: string;
}

export function mutantOf(file: string, source: string, edit: Edit): Mutant {
  const was = source.slice(edit.from, edit.to);
  const line = source.slice(0, edit.from + (/\S/.exec(was)?.index ?? 0)).split('\n').length;
  const hash = createHash('sha256').update(JSON.stringify([file, source, edit.from, edit.to, edit.is]));
  return { ...edit, file, line, was, id: hash.digest('hex').slice(0, 12) };
}

export function applied({ from, to, is }: Edit, source: string): string {
  return source.slice(0, from) + is + source.slice(to);
}

/**
 * Sorts in an order that depends only on the seed. So the first N mutants are a sample, and a
 * larger sample begins with the smaller one.
 */
export function shuffled(mutants: readonly Mutant[], seed: string): Mutant[] {
  const rank = ({ id }: Mutant) => createHash('sha256').update(`${seed} ${id}`).digest('hex');
  return mutants
    .map((mutant) => ({ mutant, rank: rank(mutant) }))
    .sort((one, other) => (one.rank < other.rank ? -1 : 1))
    .map(({ mutant }) => mutant);
}

const MAX_TEXT = 70;

export function described({ file, line, kind, was, is }: Mutant): string {
  const short = (text: string) => text.replace(/\s+/g, ' ').trim().slice(0, MAX_TEXT);
  return `${file}:${line}  ${kind}: ${short(was)}${is.trim() === '' ? '' : ` → ${short(is)}`}`;
}
