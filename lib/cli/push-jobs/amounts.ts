/** Numbers of nodes as users write them: 17, or 80%. Pure; used by the options of `cnapi job`. */
import { UsageError } from '../terminal/command-errors.ts';

/** @throws UsageError */
export function parseQuorum(text: string | undefined): number | string | undefined {
  const { percent, count } = parseAmount(text, '--quorum');
  return percent === undefined ? count : text;
}

/** @throws UsageError */
export function parseAmount(text: string | undefined, option: string): { percent?: number; count?: number } {
  if (text === undefined) return {};
  const [, number, sign] = /^(\d{1,6}(?:\.\d+)?)(%?)$/.exec(text) ?? [];
  if (number === undefined || (sign === '' && number.includes('.')))
    throw new UsageError(`${option} ${text} is neither a number nor a percentage such as 80%`);
  if (sign === '%' && Number(number) > 100) throw new UsageError(`${option} ${text} is more than 100%`);
  return sign === '%' ? { percent: Number(number) } : { count: Number(number) };
}

/** The most of `count` nodes that are no more than this percentage. */
export const percentageOf = (percent: number, count: number): number => Math.floor((percent / 100) * count);
