/**
 * Wraps the prose of help texts. In the source, a line is a paragraph (a backslash at the end of a
 * line of a template joins it with the next). Pure.
 */

/** Help is wrapped at this many columns where no terminal says how many it has. */
export const HELP_WIDTH = 80;

/** Returns the width of help for a terminal: wider lines than 100 are hard to read. */
export function helpWidthOf(columns: number | undefined): number {
  return columns === undefined ? HELP_WIDTH : Math.max(40, Math.min(columns, 100));
}

/** Lines that begin with spaces, or with a number as in `1. `, continue below their first word. */
export function wrapped(text: string, width: number): string {
  return text
    .split('\n')
    .flatMap((line) => wrappedLine(line, width))
    .join('\n');
}

function wrappedLine(line: string, width: number): string[] {
  const first = /^ *(\d+\. )?/.exec(line)?.[0] ?? '';
  const hanging = ' '.repeat(first.length);
  const lines: string[] = [];
  let current = first;
  for (const word of line.slice(first.length).split(' ')) {
    const isFirst = current === first || current === hanging;
    const next = isFirst ? current + word : `${current} ${word}`;
    if (next.length > width && !isFirst) lines.push(current);
    current = next.length > width && !isFirst ? hanging + word : next;
  }
  return [...lines, current];
}
