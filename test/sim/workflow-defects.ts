/** Deliberate defects of workflow jobs, for `defects.ts`. */
import type { Defect } from './defects.ts';

export const workflowDefects: readonly Defect[] = [
  {
    name: 'a step of a workflow job begins after the cancel of its job',
    breaks: 'I10',
    firstSeed: 19,
    kind: 'workflows-',
    find: "\n    or (job.phase = 'chain' and job.cancel_requested_at is not null)",
    put: '',
    also: {
      find: "if (job.isCancelled && state.phase === 'chain') return this.#move",
      put: 'if (job.id === state.phase) return this.#move',
    },
  },
  {
    name: 'an instance that takes over a workflow job begins its step again',
    breaks: 'I10',
    firstSeed: 1,
    kind: 'workflows-',
    find: 'const present = currentStepOf(duty, job, job.state);',
    put: `const isAgain = duty.generation > 1 && !('isSeen' in duty);
        Object.assign(duty, { isSeen: true });
        const present = currentStepOf(duty, job, isAgain ? { ...job.state, name: 'due' } : job.state);`,
    also: { find: ' or job.is_begun or job.phase <> p_phase', put: ' or job.phase <> p_phase' },
  },
  {
    name: 'a drain does not wait for the tasks that run',
    breaks: 'I10',
    firstSeed: 3,
    kind: 'workflows-',
    find: 'return (await tasks.unfinished(serverUuid)) === 0;',
    put: 'return true;',
  },
  {
    name: 'a workflow job that failed leaves its agent paused',
    breaks: 'I10',
    firstSeed: 1,
    kind: 'workflows-',
    find: "    onerror: ['mark-not-rebooting', 'end-drain'],",
    put: '    onerror: [],',
  },
];
