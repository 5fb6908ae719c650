/**
 * The deliberate defects still fit the product. `npm run chaos -- --defects` shows that the checker
 * finds them.
 */
import t from 'tap';
import { fileWith } from '../support/product-text.ts';
import { ruleNames } from './checker.ts';
import { defects } from './defects.ts';
import { faultKinds } from './faults.ts';

t.test('each defect fits the product and has faults and a rule', async (t) => {
  for (const { name, changes, only, rule } of defects) {
    for (const { find } of changes) t.ok(fileWith(find), name);
    t.ok(ruleNames.includes(rule), rule);
    for (const text of only)
      t.ok(
        faultKinds.some((kind) => kind.name.includes(text)),
        text,
      );
  }
});
