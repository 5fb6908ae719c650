/**
 * `agent_pause`, `agent_resume`: whether the agent refuses other tasks (pause/pause.ts). Without
 * parameters as in Triton's CNAPI: the pause is forgotten when the agent restarts. With `drain`,
 * the pause belongs to that job.
 */
import { z } from 'zod';
import { defineTask } from '../runner/task-definition.ts';

const MAX_LEASE_MS = 86_400_000;
const common = { lane: 'control', whilePaused: true } as const;
const drain = z.uuid().optional();

export const agentPause = defineTask({
  ...common,
  params: z.object({ drain, lease: z.int().min(1).max(MAX_LEASE_MS).default(MAX_LEASE_MS) }),
  async run({ drain: jobId, lease: durationMs }, { changePause }) {
    await changePause(jobId === undefined ? { type: 'pause' } : { type: 'begin-drain', jobId, durationMs });
    return {};
  },
});

export const agentResume = defineTask({
  ...common,
  params: z.object({ drain }),
  async run({ drain: jobId }, { changePause }) {
    await changePause(jobId === undefined ? { type: 'resume' } : { type: 'end-drain', jobId });
    return {};
  },
});
