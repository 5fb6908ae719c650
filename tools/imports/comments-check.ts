/**
 * Checks the language of comments, errors and log lines, as far as a program can:
 *
 * - A documentation comment names its subject. One that begins with "Of" or "As", or with a pronoun
 *   such as "It" or "Those", can only be read together with the declaration below it. A comment
 *   after `//` may begin with a pronoun, because the line above it is its context.
 * - A negated noun is "not a number", rather than "no number", after "is" and "are". "There is no
 *   number" is fine.
 * - A line has at most 100 columns. Drawings and tables, which are indented by four spaces, may
 *   have more.
 */
import { readSources, type SourceFile } from './source.ts';

const BEGINNING = /^\s*\/\*\*\s*(.*)$/;
const WITHOUT_SUBJECT =
  /^(Of|As|It|Its|They|Their|Them|Those|One(?= (?:of|that|which|is|at|after|whose|in|with|by)\b))\b/;
const NEGATED_NOUN =
  /(?<!\bthere )\b(?:is|are) no (?!(?:longer|more|less|fewer|better|later|faster|slower|such)\b)\w+/i;

const COMMENT_COLUMNS = 100;
const COMMENT_LINE = /^\s*(?:\/\*\*|\*(?! {4})|\/\/)(?: |$)/;

export function checkComments(root: string): string[] {
  return readSources(root, ['server.ts', 'lib', 'tools', 'test']).flatMap((file) => [
    ...commentsWithoutSubject(file),
    ...negatedNouns(file),
    ...longLines(file),
  ]);
}

function commentsWithoutSubject({ name, lines }: SourceFile): string[] {
  return lines.flatMap((line, index) => {
    const [, sameLine] = BEGINNING.exec(line) ?? [];
    const text = sameLine === '' ? lines[index + 1]?.replace(/^\s*\*\s*/, '') : sameLine;
    const [, word] = WITHOUT_SUBJECT.exec(text ?? '') ?? [];
    return word === undefined ? [] : [`${name}:${index + 1}: a comment begins with "${word}"; give it a subject`];
  });
}

/** SQL is left out, because migrations that have landed do not change. */
function negatedNouns({ name, lines }: SourceFile): string[] {
  if (name.endsWith('.sql')) return [];
  return lines.flatMap((line, index) => {
    const [words] = NEGATED_NOUN.exec(line) ?? [];
    return words === undefined ? [] : [`${name}:${index + 1}: "${words}": write "not" and the noun`];
  });
}

function longLines({ name, lines }: SourceFile): string[] {
  return lines.flatMap((line, index) =>
    line.length <= COMMENT_COLUMNS || !COMMENT_LINE.test(line)
      ? []
      : [`${name}:${index + 1}: a comment has ${line.length} columns; wrap it at ${COMMENT_COLUMNS}`],
  );
}
