/** A text of a configuration that a parser of its own checks. Pure. */
import type { z } from 'zod';

/** Checks the text with `parse`; the message that `parse` throws becomes the issue. */
export const parsed = (text: z.ZodString, parse: (value: string) => unknown) =>
  text.superRefine((value, context) => {
    try {
      parse(value);
    } catch (error) {
      context.addIssue({ code: 'custom', message: (error as Error).message });
    }
  });
