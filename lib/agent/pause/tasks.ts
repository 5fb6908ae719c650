/**
 * `agent_pause`, `agent_resume`: whether the agent refuses other tasks (pause/pause.ts). Without
 * parameters as in Triton's CNAPI: the pause is forgotten when the agent restarts. With `drain`,
 * the pause belongs to that job.
 */
import { z } from 'zod';
import { defineTask, type TaskDefinitions } from '../runner/task-definition.ts';

const MAX_LEASE_MS = 86_400_000;
const common = { lane: 'control', whilePaused: true } as const;
const drain = z.uuid().optional();

export const pauseTasks = {
  agent_pause: defineTask({
    ...common,
    params: z.object({ drain, lease: z.int().min(1).max(MAX_LEASE_MS).default(MAX_LEASE_MS) }),
    async run({ drain: jobId, lease: durationMs }, { changePause }) {
      await changePause(jobId === undefined ? { type: 'pause' } : { type: 'begin-drain', jobId, durationMs });
      return {};
    },
  }),
  agent_resume: defineTask({
    ...common,
    params: z.object({ drain }),
    async run({ drain: jobId }, { changePause }) {
      await changePause(jobId === undefined ? { type: 'resume' } : { type: 'end-drain', jobId });
      return {};
    },
  }),
} satisfies TaskDefinitions;
