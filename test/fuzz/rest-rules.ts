/**
 * Rules for the answer to any request, however strange: no 5xx for a caller's fault, no error
 * without `code` and `message`, no invalid JSON. This is the only table of deliberate exceptions;
 * docs/compatibility.md gives the reasons.
 */
import { allContracts } from '../../lib/protocol/api/all-contracts.ts';
import { mismatchOf } from '../support/contracts.ts';
import type { Answer } from './answers.ts';

interface Exception {
  name: string;
  /** operationIds; if absent, any operation. */
  of?: readonly string[];
  status: number;
  code: string;
  message?: RegExp;
}

/** Only agents of Triton can do these. */
const FOR_TRITON = ['GetVmVnc', 'MigrateVm', 'DockerBuild'];
const VM_QUESTIONS = ['GetVm', 'GetVmInfo', 'GetVmProcesses', 'DockerExec', 'DockerCopy', 'DockerStats'];
const ZFS = allContracts.flatMap(({ name, tag }) => (tag === 'zfs' ? [name] : []));
const SYNCHRONOUS = [
  'CommandExecute',
  'RefreshSysinfo',
  'PauseAgent',
  'ResumeAgent',
  'ListServerImages',
  'GetServerImage',
  ...ZFS,
  ...VM_QUESTIONS,
  ...FOR_TRITON.filter((name) => name !== 'MigrateVm'),
];
const OF_THE_REFERENCE = allContracts.flatMap(({ name, origin, referenceAborts }) =>
  origin === 'reference' && referenceAborts !== true ? [name] : [],
);

/** Routes whose errors have the form of Chef: a text, or a list of texts. */
const CHEF: ReadonlySet<string | undefined> = new Set(
  allContracts.flatMap(({ name, tag }) => (tag === 'pushy' ? [name] : [])),
);

/** 5xx that are answered deliberately. Every other one is a finding. */
export const EXCEPTIONS: readonly Exception[] = [
  {
    name: "a parameter of the wrong type on a route of Triton's CNAPI: 500, as Triton's clients know it",
    of: OF_THE_REFERENCE,
    status: 500,
    code: 'InvalidParameters',
    message: /^Request parameters failed validation$/,
  },
  {
    name: "a synchronous route's task failed: 500 with the task's message, as Triton's CNAPI",
    of: SYNCHRONOUS,
    status: 500,
    code: 'InternalError',
    message: /^(?!Internal error;)/,
  },
  {
    name: 'what the agent of this server cannot do: VMs without --containers, ZFS without its programs, and what only agents of Triton can',
    of: [...VM_QUESTIONS, ...ZFS, ...FOR_TRITON],
    status: 501,
    code: 'NotSupported',
  },
  {
    name: "a wait for a ticket that is expired, or expires meanwhile: 500, as Triton's CNAPI",
    of: ['WaitTicket'],
    status: 500,
    code: 'InternalError',
    message: /^ticket (\S+ is|has) expired$/,
  },
  {
    name: "a legacy agent that does not answer: 500, as Triton's CNAPI",
    of: ['TaskHistory', 'PauseAgent', 'ResumeAgent'],
    status: 500,
    code: 'InternalError',
    message: /^(?!Internal error;)/,
  },
  {
    name: 'a legacy agent whose sysinfo names no address: 500, as any failure of a legacy agent',
    of: ['TaskHistory', 'PauseAgent', 'ResumeAgent'],
    status: 500,
    code: 'NoAgentAddress',
  },
  {
    name: "a negative offset in the list of servers: 500, as Triton's CNAPI",
    of: ['ListServers'],
    status: 500,
    code: 'InternalError',
    message: /^OFFSET must not be negative$/,
  },
  {
    name: "boot parameters with a platform that is not declared: 500, as Triton's CNAPI",
    of: ['ChangeBootDefaults', 'ReplaceBootDefaults', 'ChangeBootParams', 'ReplaceBootParams'],
    status: 500,
    code: 'InternalError',
    message: /^Platform '.*' does not exist$/s,
  },
  {
    name: "NIC tags of a server that is not set up: 500, as Triton's CNAPI",
    of: ['UpdateServerNics'],
    status: 500,
    code: 'InternalError',
    message: /^Server is not setup$/,
  },
  {
    name: 'as many push jobs as may be unfinished',
    of: ['CreatePushJob'],
    status: 503,
    code: 'TooManyPushJobs',
  },
  {
    name: 'an instance that cannot keep up with its work, or is about to stop, admits no agents',
    of: ['AgentLink'],
    status: 503,
    code: 'ServiceUnavailable',
  },
  {
    name: 'a queue with 10,000 waiting tickets accepts no more',
    of: ['CreateTicket'],
    status: 503,
    code: 'TooManyTickets',
  },
];

/**
 * Routes whose answer may take as long as the caller requests; the callers of these tests do not
 * wait.
 */
export const MAY_WAIT: ReadonlySet<string> = new Set([
  ...SYNCHRONOUS,
  'WaitTask',
  'WaitTicket',
  'FollowTask',
  'FollowPushJob',
  'FollowChefJob',
  'FollowChefJobs',
  'TaskHistory',
]);

/**
 * The violation in the answer; undefined if there is none. `operationId`: of the route that
 * answered, if known.
 */
export function complaintOf(
  answer: Answer,
  { operationId, method }: { operationId: string | undefined; method: string },
) {
  const { status, headers, body } = answer;
  if (method === 'HEAD') return status >= 500 ? `${status} to HEAD` : undefined;
  if (status < 400) return jsonComplaint(answer, operationId);
  const error = parsed(body);
  const type = headers['content-type'];
  if (isNotReady(operationId, status, error)) return undefined;
  if (type !== 'application/json') return `an error (${status}) as ${type}: ${shown(body)}`;
  // A method that its path does not have belongs to no operation.
  if ((operationId === undefined || CHEF.has(operationId)) && isChefError(error))
    return status < 500 ? undefined : `${status}: ${shown(body)}`;
  if (!isError(error)) return `an error (${status}) without code and message: ${shown(body)}`;
  if (status < 500 || isDeliberate(status, error, operationId)) return undefined;
  return `${status} ${error.code}: ${error.message}`;
}

/** `GET /ready` has a body of its own, for load balancers: `ready` and `reasons`. */
function isNotReady(operationId: string | undefined, status: number, body: unknown): boolean {
  const { ready, reasons } = (body ?? {}) as { ready?: unknown; reasons?: unknown };
  return operationId === 'Ready' && status === 503 && ready === false && Array.isArray(reasons);
}

function isDeliberate(
  status: number,
  { code, message }: { code: string; message: string },
  operationId: string | undefined,
) {
  return EXCEPTIONS.some(
    (one) =>
      one.status === status &&
      one.code === code &&
      (one.message?.test(message) ?? true) &&
      (one.of === undefined || operationId === undefined || one.of.includes(operationId)),
  );
}

function jsonComplaint(
  { status, headers, body, isOpenEnded }: Answer,
  operationId: string | undefined,
): string | undefined {
  if (isOpenEnded) return undefined;
  const contract = allContracts.find(({ name }) => name === operationId);
  if (contract !== undefined) return mismatchOf(contract, { status, contentType: headers['content-type'], text: body });
  if (headers['content-type'] !== 'application/json' || body === '') return undefined;
  return parsed(body) === undefined ? `${status} with invalid JSON: ${shown(body)}` : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isError(value: unknown): value is { code: string; message: string } {
  const { code, message } = (value ?? {}) as { code?: unknown; message?: unknown };
  return typeof code === 'string' && code !== '' && typeof message === 'string' && message !== '';
}

function isChefError(value: unknown): boolean {
  const { error } = (value ?? {}) as { error?: unknown };
  const texts: readonly unknown[] = Array.isArray(error) ? error : [error];
  return texts.length > 0 && texts.every((text) => typeof text === 'string' && text !== '');
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 200));
}
