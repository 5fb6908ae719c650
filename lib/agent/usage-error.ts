/** The error of a program of agents that was given options it cannot run with. */
import { CnapiError } from '../platform/errors.ts';

/** The program prints the message and ends. */
export class AgentUsageError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidArgument', 409, message, { cause });
  }
}
