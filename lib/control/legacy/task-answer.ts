/**
 * Interprets a legacy agent's answer to `POST /tasks`, or its absence (spec of Triton's CNAPI: 200
 * is the task's result, 500 `{error, details}` its failure, all others are refusals), and the list
 * in its answer to `GET /history`. An answer with more values than a frame may have, or nested too
 * deeply, is not parsed. Pure.
 */

import type { HttpError } from '../../platform/http-client/http-error.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { JsonLimitError, parseBoundedJson } from '../../protocol/json/bounded-json.ts';
import { MAX_JSON_DEPTH } from '../../protocol/json/storable.ts';
import { MAX_FRAME_VALUES } from '../../protocol/limits.ts';
import { type TaskError, taskEnds } from '../tasks/store/task.ts';
import type { AgentAnswer } from './legacy-http-client.ts';

export type PostedEnd = { outcome: 'complete'; result: JsonObject } | { outcome: 'failure'; error: TaskError };

const MAX_MESSAGE = 4_000;
const CODE = /^[A-Za-z][\w.-]{0,99}$/;

export function endOfAnswer(answer: AgentAnswer): PostedEnd {
  if ('unread' in answer) return notKept(answer, answer.unread);
  const body = parse(answer.body);
  if (body.excess !== undefined) return notKept(answer, body.excess);
  return isDone(answer)
    ? completion(body)
    : { outcome: 'failure', error: refusal(answer.status, objectOf(body.value)) };
}

/** Undefined if the answer is not a list, or is longer than accepted. */
export function listOfAnswer(answer: AgentAnswer): unknown[] | undefined {
  const value = 'body' in answer ? parse(answer.body).value : undefined;
  return Array.isArray(value) ? value : undefined;
}

/**
 * Only the log has the reason of a failed connection: a caller that controls an agent's address
 * must not learn what listens there.
 */
export function endOfError({ kind, mayHaveArrived }: Pick<HttpError, 'kind' | 'mayHaveArrived'>): PostedEnd {
  // The instance stopped before it had a connection.
  if (!mayHaveArrived && kind === 'given-up') return { outcome: 'failure', error: taskEnds.notTaken };
  if (!mayHaveArrived) return failure('AgentUnreachable', 'the agent could not be reached; the log says why');
  if (kind === 'timed-out') return { outcome: 'failure', error: taskEnds.timedOut };
  if (kind === 'given-up') return { outcome: 'failure', error: taskEnds.senderLost };
  return failure('OutcomeUnknown', 'the agent gave no answer; whether the task ran is unknown');
}

export function failure(code: string, message: string): PostedEnd {
  return { outcome: 'failure', error: { code, message: message.slice(0, MAX_MESSAGE) } };
}

const isDone = ({ status }: AgentAnswer): boolean => status >= 200 && status < 300;

/** Keeps the end if the agent reported that the task is done: it ran. */
function notKept(answer: AgentAnswer, reason: string): PostedEnd {
  const message = `what the agent answered was not kept: ${reason}`;
  if (isDone(answer) && answer.isJson) return { outcome: 'complete', result: { truncated: true, message } };
  return failure('BadAgentAnswer', `the agent answered HTTP ${answer.status}; ${message}`);
}

interface Parsed {
  value?: unknown;
  isUnreadable?: true;
  /** How the answer exceeds the accepted number of values or depth. */
  excess?: string;
}

/** An empty body counts as an empty object, as in Triton's client. */
function parse(text: string): Parsed {
  if (text.trim() === '') return { value: {} };
  try {
    return { value: parseBoundedJson(text, { maxValues: MAX_FRAME_VALUES, maxDepth: MAX_JSON_DEPTH }) };
  } catch (error) {
    return error instanceof JsonLimitError ? { excess: `it ${error.message}` } : { isUnreadable: true };
  }
}

/**
 * Lists stay lists, as in Triton's CNAPI. A body that is not JSON may not come from an agent at
 * all.
 */
function completion({ value, isUnreadable }: Parsed): PostedEnd {
  if (isUnreadable) {
    return failure('BadAgentAnswer', 'the answer of the agent is not JSON; whether the task ran is unknown');
  }
  const result = typeof value === 'object' ? (value ?? {}) : { value };
  return { outcome: 'complete', result: result as JsonObject };
}

function objectOf(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null ? (value as JsonObject) : {};
}

/**
 * The message that Triton's CNAPI uses: the agent's `error`, or the `message` of an HTTP error
 * body.
 */
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
  return { code: 'BadAgentAnswer', message: `the agent answered HTTP ${status}, which is not an answer to a task` };
}
