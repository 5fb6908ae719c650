/**
 * The deliberate defects still fit the product. `npm run chaos -- --defects` shows that the checker
 * finds them.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { ruleNames } from './checker.ts';
import { defects, withDefect } from './defects.ts';
import { faultKinds } from './faults.ts';

t.test('each defect fits the product and has faults and a rule', async (t) => {
  for (const { name, changes, only, rule } of defects) {
    for (const change of changes) {
      const text = readFileSync(path.resolve(import.meta.dirname, '../..', change.file), 'utf8');
      t.not(withDefect(text, change), text, `${name}: ${change.file}`);
    }
    t.ok(ruleNames.includes(rule), rule);
    for (const text of only)
      t.ok(
        faultKinds.some((kind) => kind.name.includes(text)),
        text,
      );
  }
});
