/**
 * Makes text from the network safe to show: characters that would control a terminal (control
 * characters, escapes) or reverse its line (bidirectional controls) are shown as escapes such as
 * `\x1b`. Pure.
 */

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSAFE = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Escapes the control characters of one line, including line feeds and tabs. */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, escaped);
}

/** Escapes the control characters of many lines, except line feeds and tabs. */
export function escapeControlsInLines(text: string): string {
  return text.replace(/\r\n/g, '\n').replace(UNSAFE, (one) => (one === '\n' || one === '\t' ? one : escaped(one)));
}

/**
 * JSON that does not control a terminal either: JSON itself escapes only some control characters.
 */
export function safeJson(value: unknown, indent?: number): string {
  const json = JSON.stringify(value, undefined, indent) ?? 'null';
  return json.replace(UNSAFE, (one) => (one === '\n' ? one : `\\u${hex(one.charCodeAt(0), 4)}`));
}

function escaped(one: string): string {
  const named: Record<string, string> = { '\n': '\\n', '\t': '\\t', '\r': '\\r' };
  const code = one.charCodeAt(0);
  return named[one] ?? (code < 256 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`);
}

const hex = (code: number, digits: number): string => code.toString(16).padStart(digits, '0');
