/**
 * What an old agent's reply to `POST /tasks`, or the want of one, means for the task (spec of the reference: 200 is its
 * result, 500 `{error, details}` its failure, the rest are refusals). Pure.
 */
import type { PostedEnd } from '../tasks/messenger.ts';
import { type JsonObject, type TaskError, taskEnds } from '../tasks/task.ts';
import type { AgentCallError, AgentReply } from './messenger.ts';

const MAX_MESSAGE = 4_000;
const CODE = /^[A-Za-z][\w.-]{0,99}$/;

export function endOfReply(reply: AgentReply): PostedEnd {
  const isDone = reply.status >= 200 && reply.status < 300;
  if ('unread' in reply) {
    const message = `what the agent answered was not kept: ${reply.unread}`;
    if (isDone && reply.isJson) return { outcome: 'complete', result: { truncated: true, message } };
    return failure('BadAgentReply', `the agent answered HTTP ${reply.status}; ${message}`);
  }
  const body = parse(reply.body);
  return isDone ? completion(body) : { outcome: 'failure', error: refusal(reply.status, objectOf(body.value)) };
}

export function endOfError({ trouble, wasSent, message }: AgentCallError): PostedEnd {
  // An instance that stops before it had a connection.
  if (!wasSent && trouble === 'given-up') return { outcome: 'failure', error: taskEnds.notTaken };
  if (!wasSent) return failure('AgentUnreachable', message);
  if (trouble === 'timed-out') return { outcome: 'failure', error: taskEnds.timedOut };
  if (trouble === 'given-up') return { outcome: 'failure', error: taskEnds.posterLost };
  return failure('OutcomeUnknown', `${message}; whether the task ran is unknown`);
}

export function failure(code: string, message: string): PostedEnd {
  return { outcome: 'failure', error: { code, message: message.slice(0, MAX_MESSAGE) } };
}

interface Parsed {
  value?: unknown;
  isUnreadable?: true;
}

/** No body is an empty object, as the reference's client has it. */
function parse(text: string): Parsed {
  if (text.trim() === '') return { value: {} };
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { isUnreadable: true };
  }
}

/** Lists are kept as lists, as the reference does. What is no JSON may not be an agent's at all. */
function completion({ value, isUnreadable }: Parsed): PostedEnd {
  if (isUnreadable) {
    return failure('BadAgentReply', 'the answer of the agent is no JSON; whether the task ran is unknown');
  }
  const result = typeof value === 'object' ? (value ?? {}) : { value };
  return { outcome: 'complete', result: result as JsonObject };
}

function objectOf(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null ? (value as JsonObject) : {};
}

/** The message as the reference takes it: the agent's `error`, or the `message` of a body that is an HTTP error. */
function refusal(status: number, body: JsonObject): TaskError {
  const restCode = objectOf(body.details).restCode;
  const said = [body.error, body.message].find((text) => typeof text === 'string' && text !== '') as string | undefined;
  const { code, message } = meaningOf(status, said !== undefined);
  return {
    code: typeof restCode === 'string' && CODE.test(restCode) ? restCode : code,
    message: (said ?? message).slice(0, MAX_MESSAGE),
  };
}

function meaningOf(status: number, hasMessage: boolean): TaskError {
  if (status === 500) return { code: 'Failed', message: 'no error given' };
  if (status === 503) return { code: 'AgentPaused', message: 'the agent takes no tasks now' };
  if (status === 404 && hasMessage) return taskEnds.unknownTask;
  if (status === 404) {
    const message = "the agent there is not this server's, or has not begun to take tasks";
    return { code: 'NotThisServer', message };
  }
  if (status >= 400) return { code: 'Failed', message: `the agent refused the task with HTTP ${status}` };
  return { code: 'BadAgentReply', message: `the agent answered HTTP ${status}, which is no answer to a task` };
}
