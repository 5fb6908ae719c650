/** Thrown by a task, or the reason of its abort: the attempt ends as `failure` with this code. */
export class TaskFailure extends Error {
  readonly code: string;
  /** The partial result to report with the failure. */
  readonly result: Record<string, unknown> | undefined;

  constructor(code: string, message: string, fields: { result?: Record<string, unknown>; cause?: unknown } = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = 'TaskFailure';
    this.code = code;
    this.result = fields.result;
  }
}
