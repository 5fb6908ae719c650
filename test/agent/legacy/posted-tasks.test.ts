import t from 'tap';
import { PostedTasks } from '../../../lib/agent/legacy/posted-tasks.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { TaskFrame } from '../../../lib/protocol/link/frames.ts';

const SECRET_URL = 'https://example.com/a.tar?token=hush';

for (const [name, param] of [
  ['agent_install', 'package_file'],
  ['image_ensure_present', 'url'],
] as const)
  t.test(`a URL of ${name} that may hold a secret is hidden, also when the caller does not say so`, async (t) => {
    const given: TaskFrame[] = [];
    const tasks = new PostedTasks({ clock, random, give: (frame) => given.push(frame), acknowledge: () => undefined });
    const answer = tasks.post({ name, params: { [param]: SECRET_URL } });
    t.strictSame(tasks.history[0]?.params, { [param]: '(secret)', secret_params: [`/${param}`] });
    // The journal reads `secret_params` too, and forgets the value at the end.
    t.strictSame(given[0]?.params, { [param]: SECRET_URL, secret_params: [`/${param}`] }, 'the task has the value');
    tasks.giveUp();
    t.match(await answer, { error: { code: 'OutcomeUnknown' } });
  });
