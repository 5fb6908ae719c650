/**
 * The limit of a reason in a close frame: RFC 6455, section 5.5 leaves 123 bytes after the code.
 */
const MAX_REASON_BYTES = 123;

/** Returns the reason, cut at a character boundary if it is too long. */
export function closeReason(reason: string): string {
  const bytes = Buffer.from(reason);
  if (bytes.length <= MAX_REASON_BYTES) return reason;
  return bytes
    .subarray(0, MAX_REASON_BYTES)
    .toString()
    .replace(/\ufffd+$/, '');
}
