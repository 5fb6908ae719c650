/** The environment that a caller gives to a command, as the kernel takes it. */
import { z } from 'zod';
import { MAX_COMMAND_VARIABLES } from '../../protocol/limits.ts';

/** Limits one argument, and the value of one variable. */
export const MAX_WORD_CHARS = 128 * 1024;

export const withoutNul = z.string().refine((text) => !text.includes('\0'), 'holds a NUL character');

const variable = z.string().regex(/^[^=\0]+$/, 'is not a name of an environment variable');

export const environment = z
  .record(variable, withoutNul.max(MAX_WORD_CHARS))
  .refine((env) => Object.keys(env).length <= MAX_COMMAND_VARIABLES, `holds more than ${MAX_COMMAND_VARIABLES}`);
