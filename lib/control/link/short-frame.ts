/**
 * Encodes a text of at most 125 ASCII characters as one whole WebSocket frame of a server (RFC
 * 6455, section 5.2: final, text, not masked). Write it as latin1, in which each character is one
 * byte.
 */
export function shortFrame(text: string): string {
  return `\x81${String.fromCharCode(text.length)}${text}`;
}
