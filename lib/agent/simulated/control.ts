/**
 * Commands to a running fleet: one JSON object per line on stdin, one JSON line in answer on
 * stdout. `{"do":"status"}`; `{"do":"silence","count":10,"ms":5000}`, and likewise vanish and slow;
 * cut, restart and reinstall take no ms. `uuids` may replace `count`; without either, the command
 * applies to all agents.
 */
import { z } from 'zod';
import { messageOf } from '../../platform/errors.ts';
import type { SimulatedAgents } from './fleet.ts';

const command = z.object({
  do: z.enum(['status', 'silence', 'vanish', 'slow', 'cut', 'restart', 'reinstall']),
  count: z.int().min(1).optional(),
  uuids: z.array(z.string()).optional(),
  ms: z.int().min(0).max(3_600_000).default(5000),
});
type ControlCommand = z.infer<typeof command>;

/** Executes one line. Never throws: an error becomes the answer. */
export async function runControlCommand(fleet: SimulatedAgents, line: string): Promise<Record<string, unknown>> {
  try {
    const parsed = command.parse(JSON.parse(line));
    const uuids = parsed.uuids ?? fleet.uuids.slice(0, parsed.count);
    await act(fleet, parsed, uuids);
    return parsed.do === 'status' ? { status: fleet.status() } : { did: parsed.do, agents: uuids.length };
  } catch (error) {
    return { error: error instanceof z.ZodError ? z.prettifyError(error) : messageOf(error) };
  }
}

async function act(fleet: SimulatedAgents, { do: what, ms }: ControlCommand, uuids: string[]): Promise<void> {
  switch (what) {
    case 'status':
      return;
    case 'silence':
      return fleet.silence(uuids, ms);
    case 'vanish':
      return fleet.vanish(uuids, ms);
    case 'slow':
      return fleet.slow(uuids, ms);
    case 'cut':
      return fleet.cut(uuids);
    case 'restart':
      return fleet.restart(uuids, 'kept');
    case 'reinstall':
      return fleet.restart(uuids, 'lost');
    default:
      return what satisfies never;
  }
}
