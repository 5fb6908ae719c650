/** The environment that a caller gives to a command, as the kernel takes it. */
import { z } from 'zod';
import { MAX_COMMAND_VARIABLES } from '../../protocol/limits.ts';
import { isVariableName } from '../../protocol/variable-name.ts';

/** Limits one argument, and the value of one variable. */
export const MAX_WORD_CHARS = 128 * 1024;

export const withoutNul = z.string().refine((text) => !text.includes('\0'), 'holds a NUL character');

const NOT_A_NAME = 'is not a name of a variable that a shell can export';

/** `z.record` leaves it out. */
const withoutProto = z.unknown().superRefine((env, context) => {
  if (Object.hasOwn(Object(env), '__proto__'))
    context.addIssue({ code: 'custom', path: ['__proto__'], message: NOT_A_NAME });
});

export const environment = withoutProto
  .pipe(z.record(z.string().refine(isVariableName, NOT_A_NAME), withoutNul.max(MAX_WORD_CHARS)))
  .refine((env) => Object.keys(env).length <= MAX_COMMAND_VARIABLES, `holds more than ${MAX_COMMAND_VARIABLES}`);
