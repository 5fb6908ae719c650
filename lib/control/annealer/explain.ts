/** Why a noderole is in its state, and what takes it further, in a sentence. Pure. */
import type { RoleDocument } from '../../protocol/api/documents/annealer.ts';
import { TICK_MS } from '../tasks/deadlines/deadline-counter.ts';
import type { NoderoleDetails } from './noderole-store.ts';
import type { AnnealerSettings } from './settings.ts';

interface NoderoleFacts {
  noderole: NoderoleDetails;
  role: RoleDocument | undefined;
  /** Undefined: the server does not exist. */
  isServerRunning: boolean | undefined;
  /** The run of the server that has not ended. */
  openRun: { noderoleId: string; role: string } | undefined;
  /** Runs of all servers that have not ended. */
  openRuns: number;
  settings: AnnealerSettings;
}

export function explainNoderole(facts: NoderoleFacts): string {
  const { noderole, role } = facts;
  switch (noderole.state) {
    case 'proposed':
      if (facts.openRun?.noderoleId === noderole.id) return 'proposed; its last run has not ended on the server';
      return 'proposed; it runs when its deployment is committed (cnapi deployment commit)';
    case 'blocked':
      return explainBlocked(noderole);
    case 'todo':
      return explainDue(facts);
    case 'transition':
      return noderole.is_stale ? 'runs; it will run again, because its data was changed meanwhile' : 'runs';
    case 'active':
      return role?.flags.includes('destructive') ? 'active; it is destructive and is not run again' : 'active';
    case 'error':
      return `failed ${noderole.failures === 1 ? 'once' : `${noderole.failures} times`}; fix the cause, then run cnapi noderole retry`;
    default:
      return noderole.state satisfies never;
  }
}

const MAX_NAMED = 3;

function explainBlocked({ blocked_by: blockedBy, parents }: NoderoleDetails): string {
  if (blockedBy !== null) return `blocked by noderole ${blockedBy}, which is in error; it runs when that has succeeded`;
  const waiting = parents.filter(({ state }) => state !== 'active');
  const named = waiting.slice(0, MAX_NAMED).map(({ role, id, state }) => `${role} (${id}) is ${state}`);
  const more = waiting.length > MAX_NAMED ? `, and ${waiting.length - MAX_NAMED} more` : '';
  return `waits for its parents: ${named.join(', ')}${more}`;
}

function explainDue({ noderole, role, isServerRunning, openRun, openRuns, settings }: NoderoleFacts): string {
  const { annealerMaxRuns: cap, annealerJigs: jigs } = settings;
  if (role === undefined) return `cannot run: the role ${noderole.role} does not exist any more`;
  if (isServerRunning === undefined) return 'cannot run: its server does not exist any more; delete the noderole';
  if (!jigs.includes(role.jig)) return `cannot run: the jig ${role.jig} is not active (annealerJigs)`;
  if (!isServerRunning) return 'waits for its server, which is not running';
  if (noderole.pause_ticks > 0) return `is tried again in about ${(noderole.pause_ticks * TICK_MS) / 1000} s`;
  if (openRun !== undefined) return `waits for the run of ${openRun.role} (${openRun.noderoleId}) on its server`;
  if (cap === 0) return 'waits: the annealer is paused (annealerMaxRuns is 0)';
  if (openRuns >= cap) return `waits: the limit of ${cap} concurrent runs is reached (annealerMaxRuns)`;
  return 'due; the annealer begins its run next';
}
