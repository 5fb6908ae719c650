/** The file that a push job brings, as a parameter. */
import { z } from 'zod';
import { MAX_PUSH_FILE_BYTES } from '../limits.ts';
import { text } from './rules.ts';

export const file = text()
  .transform((value, context) => {
    const bytes = fileOf(value);
    if (typeof bytes !== 'string') return bytes;
    context.addIssue(bytes);
    return z.NEVER;
  })
  .meta({ type: 'string' });

/** The file's bytes, or why there are none. */
function fileOf(value: string): Buffer | string {
  if (value.startsWith('raw:')) return bounded(Buffer.from(value.slice(4)));
  const [, content] = /^base64:((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/.exec(value) ?? [];
  if (content !== undefined) return bounded(Buffer.from(content, 'base64'));
  return value.startsWith('base64:')
    ? 'value is not valid base64 after "base64:"'
    : 'value begins with neither "raw:" nor "base64:"';
}

const bounded = (bytes: Buffer): Buffer | string =>
  bytes.length > MAX_PUSH_FILE_BYTES ? `value has more than ${MAX_PUSH_FILE_BYTES} bytes` : bytes;
