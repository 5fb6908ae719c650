/**
 * The deliberate defects still fit the product. `npm run fuzz -- --defects` shows that the fuzzer
 * finds them.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { defects, withDefect } from './defects.ts';

t.test('the text that each defect replaces exists in the product', async (t) => {
  for (const { name, changes } of defects) {
    for (const change of changes) {
      const text = readFileSync(path.resolve(import.meta.dirname, '../..', change.file), 'utf8');
      t.not(withDefect(text, change), text, `${name}: ${change.file}`);
    }
  }
});
