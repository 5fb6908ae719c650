/** Whether a change of a node of a push job follows the rules of `push-node-rules.ts`. Pure. */
import type { NodeStatus } from '../../lib/protocol/api/push/job-schemas.ts';
import { type NodeEvent, type NodeStage, nextStateOf } from '../control/push/push-node-rules.ts';
import type { PushNodeRow } from './changes.ts';

/** The events of nodes that have no reason afterwards. */
const EVENT_OF: Readonly<Partial<Record<NodeStatus, NodeEvent>>> = {
  ready: 'voted',
  running: 'started',
  succeeded: 'succeeded',
  failed: 'failed',
};

/** `isLate`: its job ends because its time is over. */
export function isStepOfNode(before: PushNodeRow | null, after: PushNodeRow, isLate: boolean): boolean {
  if ((before?.state ?? 'new') === after.state && (before?.reason ?? null) === after.reason) return true;
  const event = after.reason ?? EVENT_OF[after.state];
  return event !== undefined && stagesOf(before).some((stage) => nextStateOf(stage, event, isLate) === after.state);
}

/**
 * The stages in which the node may have been at the event. A round may see a start and its end at
 * once.
 */
function stagesOf(before: PushNodeRow | null): readonly NodeStage[] {
  if (before === null) return ['new'];
  switch (before.state) {
    case 'ready':
      return before.task === null ? ['ready'] : ['starting', 'running'];
    case 'new':
    case 'running':
      return [before.state];
    default:
      return [];
  }
}
