/** The failure of a task for which this agent was started without the option. */
import { type AllowedWork, refusalOfWork } from '../../protocol/allowed-work.ts';
import { TaskFailure } from '../task-failure.ts';

export function notAllowed(work: AllowedWork): TaskFailure {
  const { code, message } = refusalOfWork(work, 'This agent');
  return new TaskFailure(code, message);
}
