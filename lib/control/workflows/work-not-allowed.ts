/**
 * Refuses work that the agent of the server would refuse, before a job drains the server for it.
 * What the agent has reported may be a moment old; the agent decides again when the work begins.
 */
import { CnapiError } from '../../platform/errors.ts';
import { type AllowedWork, forbidsWork, refusalOfWork } from '../../protocol/allowed-work.ts';

class WorkNotAllowedError extends CnapiError {
  constructor(serverUuid: string, work: AllowedWork) {
    const { code, message } = refusalOfWork(work, `The agent of server ${serverUuid}`);
    super(code, 409, message);
  }
}

/** `sysinfo`: undefined if nobody has reported it. @throws WorkNotAllowedError */
export function checkWorkAllowed(
  serverUuid: string,
  sysinfo: Readonly<Record<string, unknown>> | undefined,
  work: AllowedWork,
): void {
  if (sysinfo !== undefined && forbidsWork(sysinfo, work)) throw new WorkNotAllowedError(serverUuid, work);
}
