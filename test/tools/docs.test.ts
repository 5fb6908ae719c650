import { readFileSync } from 'node:fs';
import t from 'tap';
import { pages } from '../../tools/docs/pages.ts';

for (const { file, text } of pages()) {
  t.test(`docs/${file} is as its declarations say (npm run docs)`, (t) => {
    t.equal(readFileSync(new URL(`../../docs/${file}`, import.meta.url), 'utf8'), text);
    t.end();
  });
}
