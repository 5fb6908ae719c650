/**
 * A text of at most 125 ASCII characters as one whole frame of a server (RFC 6455, section 5.2: the last one, text, not
 * masked), to be written as latin1, in which each character is one byte.
 */
export function shortFrame(text: string): string {
  return `\x81${String.fromCharCode(text.length)}${text}`;
}
