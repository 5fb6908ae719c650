/** A reason as a close frame can carry it: RFC 6455, section 5.5 leaves 123 bytes beside the code. */
const MAX_REASON_BYTES = 123;

/** The reason, cut on a character's edge where it is too long. */
export function closeReason(reason: string): string {
  const bytes = Buffer.from(reason);
  if (bytes.length <= MAX_REASON_BYTES) return reason;
  return bytes
    .subarray(0, MAX_REASON_BYTES)
    .toString()
    .replace(/\ufffd+$/, '');
}
