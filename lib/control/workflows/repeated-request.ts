/**
 * Whether a request for a VM repeats one that has a job already. Pure. Called by
 * `workflow-jobs.ts`.
 */
import type { WorkflowJobRow } from './workflow-store.ts';

type LastJob = Pick<WorkflowJobRow, 'execution' | 'request_hash' | 'cancel_requested_at'>;

/**
 * `same`: the request gets the last job of the VM. `new`: it gets one of its own. `busy`: that job
 * has not ended. `exists`: there is a VM with this uuid, and this request has not created it.
 */
export function answerForVm(
  last: LastJob | undefined,
  { requestHash, vmExists }: { requestHash: string; vmExists: boolean },
): 'same' | 'new' | 'busy' | 'exists' {
  const isEqual = last?.request_hash === requestHash;
  if (last === undefined) return vmExists ? 'exists' : 'new';
  switch (last.execution) {
    case 'queued':
    case 'running':
      return isEqual && last.cancel_requested_at === null ? 'same' : 'busy';
    case 'succeeded':
      if (isEqual && vmExists) return 'same';
      return vmExists ? 'exists' : 'new';
    case 'failed':
    case 'canceled':
      return vmExists ? 'exists' : 'new';
    default:
      return last.execution satisfies never;
  }
}
