/**
 * The deliberate defects still fit the product. `npm run fuzz -- --defects` shows that the fuzzer
 * finds them.
 */
import t from 'tap';
import { fileWith } from '../support/product-text.ts';
import { defects } from './defects.ts';

t.test('the text that each defect replaces exists in the product', async (t) => {
  for (const { name, changes } of defects) {
    for (const { find } of changes) t.ok(fileWith(find), name);
  }
});
