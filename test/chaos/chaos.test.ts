/**
 * Nine minutes of faults in real processes break no rule. This runs `npm run chaos` as the program
 * that it is; each rule is a test. The comments have its whole output; they are printed when a rule
 * is broken.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import t from 'tap';
import { noRedisServer } from '../support/redis.ts';
import { ruleNames } from './checker.ts';

const main = path.resolve(import.meta.dirname, 'main.ts');
const ARGUMENTS = ['--minutes', '9', '--seed', '1'];

t.setTimeout(0);

t.test('nine minutes of faults break no rule', { skip: noRedisServer }, async (t) => {
  const chaos = spawn(process.execPath, [main, ...ARGUMENTS], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => chaos.kill());
  const exited = once(chaos, 'exit');
  const rules: { rule: string; isKept: boolean }[] = [];
  for await (const line of createInterface({ input: chaos.stdout })) {
    t.comment(line);
    const [, result, rule = ''] = /^(ok|not ok) (.*?):/.exec(line) ?? [];
    if (result !== undefined) rules.push({ rule, isKept: result === 'ok' });
  }
  t.strictSame(rules.map(({ rule }) => rule).toSorted(), ruleNames.toSorted(), 'each rule has a result');
  for (const { rule, isKept } of rules) t.ok(isKept, rule);
  t.strictSame(await exited, [0, null], 'chaos itself is satisfied');
});
