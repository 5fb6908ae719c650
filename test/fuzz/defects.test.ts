/** The deliberate defects still fit the product; that the fuzzer finds them is shown by `npm run fuzz -- --defects`. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { defects, spoilt } from './defects.ts';

t.test('each defect has its place in the product', async (t) => {
  for (const { name, changes } of defects) {
    for (const change of changes) {
      const text = readFileSync(path.resolve(import.meta.dirname, '../..', change.file), 'utf8');
      t.not(spoilt(text, change), text, `${name}: ${change.file}`);
    }
  }
});
