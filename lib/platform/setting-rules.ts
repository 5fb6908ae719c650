/**
 * Rules of settings, which come from a JSON file or from the environment, where each value is a
 * string. Pure.
 */
import { z } from 'zod';

/** A whole number. Only a string of digits is read as a number. */
export const whole = (minimum: number, maximum: number) =>
  z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.number().int().min(minimum).max(maximum),
  );

/** A time of at most one day, in milliseconds. */
export const milliseconds = whole(1, 86_400_000);

/** In the environment `true` or `false`. */
export const flag = z.preprocess((value) => (value === 'true' ? true : value === 'false' ? false : value), z.boolean());

/** A list; in the environment separated by commas. */
export const commaList = <List extends z.ZodType>(list: List) =>
  z.preprocess((value) => (typeof value === 'string' ? value.split(',').map((item) => item.trim()) : value), list);
