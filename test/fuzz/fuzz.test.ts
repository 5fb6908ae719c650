/** The short form: few inputs, always the same; `npm run fuzz` feeds any number. */
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { runPart } from './campaign.ts';
import { parts } from './parts.ts';
import { Target } from './target.ts';

const SEED = 1;

t.setTimeout(FILE_TIMEOUT_MS);

for (const part of parts) {
  t.test(part.about, { timeout: FILE_TIMEOUT_MS }, async (t) => {
    const { inputs, seconds, findings } = await runPart(part, () => Target.start(t), {
      inputs: part.quick,
      seed: SEED,
    });
    t.ok(inputs >= part.quick);
    t.same(findings, [], 'no rule was broken');
    t.comment(`${inputs} inputs in ${seconds.toFixed(0)} s`);
  });
}
