/**
 * `agent_pause`, `agent_resume`: whether the agent refuses other tasks (pause/pause.ts). Without
 * parameters as in Triton's CNAPI: the pause is forgotten when the agent restarts. With `lease` it
 * ends by itself.
 */
import { z } from 'zod';
import { defineTask } from './task.ts';

const MAX_LEASE_MS = 86_400_000;
const common = { lane: 'control', whilePaused: true } as const;

export const agentPause = defineTask({
  ...common,
  params: z.object({ lease: z.int().min(1).max(MAX_LEASE_MS).optional() }),
  async run({ lease }, { changePause }) {
    await changePause(lease === undefined ? { type: 'pause' } : { type: 'lease', durationMs: lease });
    return {};
  },
});

export const agentResume = defineTask({
  ...common,
  params: z.object({ lease_only: z.boolean().optional() }),
  async run({ lease_only: leaseOnly }, { changePause }) {
    await changePause({ type: leaseOnly === true ? 'end-lease' : 'resume' });
    return {};
  },
});
