/**
 * `agent_pause`, `agent_resume`: whether the agent refuses other tasks. Forgotten when the agent
 * restarts, as in Triton's CNAPI.
 */
import { z } from 'zod';
import { defineTask } from './task.ts';

export const agentPause = pausing(true);
export const agentResume = pausing(false);

function pausing(paused: boolean) {
  return defineTask({
    lane: 'control',
    whilePaused: true,
    params: z.object({}),
    async run(_params, { setPaused }) {
      setPaused(paused);
      return {};
    },
  });
}
