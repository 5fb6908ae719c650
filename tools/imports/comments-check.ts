/**
 * Checks that documentation comments have a subject. A comment that begins with "Of" or "As" can only be
 * read together with the declaration below it.
 */
import { readSources, type SourceFile } from './source.ts';

const BEGINNING = /^\s*\/\*\*\s*(.*)$/;
const WITHOUT_SUBJECT = /^(Of|As) /;

export function checkComments(root: string): string[] {
  return readSources(root, ['server.ts', 'lib', 'tools', 'test']).flatMap(commentsWithoutSubject);
}

function commentsWithoutSubject({ name, lines }: SourceFile): string[] {
  return lines.flatMap((line, index) => {
    const [, sameLine] = BEGINNING.exec(line) ?? [];
    const text = sameLine === '' ? lines[index + 1]?.replace(/^\s*\*\s*/, '') : sameLine;
    const [, word] = WITHOUT_SUBJECT.exec(text ?? '') ?? [];
    return word === undefined ? [] : [`${name}:${index + 1}: a comment begins with "${word}"; give it a subject`];
  });
}
