import t from 'tap';
import { readPage, readSteps } from './page-steps.ts';

const PAGE_LINES = 250;
const LINES_ELSEWHERE = 4;
const FOLDER = 'control/documents/racks';
const DECLARATION = 'protocol/api/documents/racks.ts';

const page = readPage('adding-a-noun.md');
const steps = readSteps(page);

t.test(
  'the page is short, and its noun is a declaration, a folder, its mirror in test, and a few lines elsewhere',
  async (t) => {
    t.ok(page.split('\n').length <= PAGE_LINES);
    t.same(
      steps.newFiles.map(({ file }) => file),
      [`lib/${DECLARATION}`, `lib/${FOLDER}/racks.ts`, `test/${FOLDER}/racks.test.ts`],
    );
    const lines = steps.additions.flatMap(({ text }) => text.trimEnd().split('\n'));
    t.ok(lines.length > 0 && lines.length <= LINES_ELSEWHERE, `${lines.length} lines elsewhere`);
    t.ok(steps.commands.length >= 5);
  },
);
