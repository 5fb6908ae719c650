/** The file that a push job brings, as a parameter. */
import { z } from 'zod';
import { MAX_PUSH_FILE_BYTES } from '../limits.ts';
import { text } from './rules.ts';

export const pushFile = text()
  .transform((value, context) => {
    const bytes = parsePushFile(value);
    if (typeof bytes !== 'string') return bytes;
    context.addIssue(ISSUES[bytes]);
    return z.NEVER;
  })
  .meta({ type: 'string' });

const ISSUES = {
  'no-prefix': 'value begins with neither "raw:" nor "base64:"',
  'not-base64': 'value is not valid base64 after "base64:"',
  'too-large': `value has more than ${MAX_PUSH_FILE_BYTES} bytes`,
};

/** The file's bytes, or why there are none. */
export function parsePushFile(value: string): Buffer | keyof typeof ISSUES {
  if (value.startsWith('raw:')) return bounded(Buffer.from(value.slice(4)));
  const [, content] = /^base64:((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/.exec(value) ?? [];
  if (content !== undefined) return bounded(Buffer.from(content, 'base64'));
  return value.startsWith('base64:') ? 'not-base64' : 'no-prefix';
}

const bounded = (bytes: Buffer) => (bytes.length > MAX_PUSH_FILE_BYTES ? 'too-large' : bytes);
