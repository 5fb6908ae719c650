/**
 * What a run does, and what its end means. Pure.
 *
 * A script gets its inputs as JSON in the variable NODEROLE_INPUTS. It may print one line of JSON
 * as the last line of its standard output: `{"wall": {…}}`, what it has found or made.
 */
import { z } from 'zod';
import type { RoleDocument } from '../../protocol/api/documents/annealer.ts';
import { isJsonObject, type JsonObject, parseBoundedJson } from '../../protocol/json/bounded-json.ts';
import { reasonNotStorable } from '../../protocol/json/storable.ts';
import { maskParams } from '../../protocol/secret-params.ts';
import { endError, type TaskRow } from '../tasks/store/task.ts';
import { deepDifference } from './merge.ts';
import type { RunInputs } from './noderole-inputs.ts';

/** `outcome` and the rest: as in `RunEnd`. */
export interface EndStep {
  do: 'end';
  outcome: 'succeeded' | 'failed' | 'refused' | 'final';
  wall?: JsonObject;
  error?: { code: string; message: string };
}

interface TaskStep {
  do: 'begin-task';
  inputs: JsonObject;
  params: JsonObject;
  maskedParams: JsonObject;
  timeoutMs: number;
}

export type RunStep = EndStep | TaskStep;

/** A variable of the environment of a program is at most 128 KiB on Linux. */
const MAX_INPUT_BYTES = 100_000;
/** A wall is part of the inputs of others. */
const MAX_WALL_BYTES = 32_768;
const MAX_WALL_VALUES = 5_000;
const MAX_MESSAGE_CHARS = 500;

/** The agent has refused to begin. */
const REFUSALS = ['AgentPaused', 'NotTaken', 'AgentFull', 'StartRefused'];

/**
 * How a run begins. `hasSucceeded`: an earlier run of its noderole has. `read-inputs`:
 * `decideWithInputs` goes on.
 */
export function decideRun(role: RoleDocument, hasSucceeded: boolean): EndStep | 'read-inputs' {
  if (role.flags.includes('destructive') && hasSucceeded) return { do: 'end', outcome: 'succeeded' };
  return role.jig === 'noop' ? { do: 'end', outcome: 'succeeded', wall: {} } : 'read-inputs';
}

/** How a run goes on once its inputs are known. */
export function decideWithInputs(role: RoleDocument, { sent, compared }: RunInputs): RunStep {
  if (role.jig === 'test') return decideTest(sent, compared);
  const text = JSON.stringify(sent);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_INPUT_BYTES)
    return failedEnd('InputsTooLarge', `its inputs have ${bytes} bytes; at most ${MAX_INPUT_BYTES} fit`);
  const params = {
    secret_params: ['/env/NODEROLE_INPUTS'],
    script: role.script ?? '',
    args: [],
    env: { NODEROLE_INPUTS: text },
  };
  const maskedParams = maskParams(params);
  return { do: 'begin-task', inputs: compared, params, maskedParams, timeoutMs: role.timeout * 1000 };
}

export const missingRoleEnd = (): EndStep => failedEnd('RoleMissing', 'its role does not exist any more');

export const tooManyInputs = (limit: number): EndStep =>
  failedEnd('InputsTooLarge', `it has more than ${limit} ancestors and neighbours on its server`);

export const abandonedEnd = (): EndStep => failedEnd('Cancelled', 'its noderole was proposed again');

/** The end of a run that cannot be read or stored, so that the other runs go on. */
export const brokenEnd = (error: unknown): EndStep =>
  failedEnd('Failed', error instanceof Error ? error.message : String(error));

const testInputs = z.object({ fail: z.string().optional(), wall: z.record(z.string(), z.unknown()).optional() });

/** `{"test": {"fail": "why"}}` fails, `{"test": {"wall": {…}}}` returns that. */
function decideTest(sent: JsonObject, compared: JsonObject): EndStep {
  const { success, data } = testInputs.safeParse(sent.test ?? {});
  if (!success) return failedEnd('InvalidInputs', 'test is not an object with fail, a text, or wall, an object');
  return data.fail === undefined ? endWithWall(data.wall ?? {}, compared) : failedEnd('TestFailed', data.fail);
}

type EndedTask = Pick<TaskRow, 'outcome' | 'error' | 'result' | 'cancel_requested_at'>;

/** `task` undefined: its record was deleted. `compared`: what the wall is compared with. */
export function decideTaskEnd(task: EndedTask | undefined, compared: JsonObject): EndStep {
  if (task === undefined) return failedEnd('OutcomeUnknown', 'the record of its task was deleted');
  if (task.outcome === 'failure') {
    const { code, message } = endError(task) ?? { code: 'Failed', message: 'no error given' };
    const outcome = REFUSALS.includes(code) ? 'refused' : code === 'Cancelled' ? 'final' : 'failed';
    return { ...failedEnd(code, message), outcome };
  }
  const { exitCode, stdout, stderr } = task.result ?? {};
  if (exitCode === 0) return decideOutput(textOf(stdout), compared);
  const last = textOf(stderr).trim().slice(-MAX_MESSAGE_CHARS);
  const code = typeof exitCode === 'number' ? String(exitCode) : 'none';
  return failedEnd('ScriptFailed', `the script ended with exit code ${code}${last === '' ? '' : `: ${last}`}`);
}

/** What an agent reports may be of any type. */
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** A last line that is not JSON is output like any other. */
function decideOutput(stdout: string, compared: JsonObject): EndStep {
  const line = stdout.trimEnd().split('\n').at(-1)?.trim() ?? '';
  if (!line.startsWith('{')) return endWithWall({}, compared);
  const reason = reasonNotWall(line);
  if (reason !== undefined) return failedEnd('InvalidResult', `the last line of its output ${reason}`);
  const result = tryParseJson(line);
  if (result === undefined) return endWithWall({}, compared);
  if (!isJsonObject(result.wall))
    return failedEnd('InvalidResult', 'the last line of its output is not JSON such as {"wall": {"port": 80}}');
  return endWithWall(result.wall, compared);
}

function reasonNotWall(line: string): string | undefined {
  if (Buffer.byteLength(line) > MAX_WALL_BYTES) return `has more than ${MAX_WALL_BYTES} bytes`;
  try {
    parseBoundedJson(line, { maxValues: MAX_WALL_VALUES });
    return undefined;
  } catch (error) {
    return error instanceof SyntaxError ? undefined : (error as Error).message;
  }
}

/** Undefined for what is not JSON. */
function tryParseJson(line: string): JsonObject | undefined {
  try {
    return JSON.parse(line) as JsonObject;
  } catch {
    return undefined;
  }
}

function endWithWall(wall: JsonObject, compared: JsonObject): EndStep {
  const reason = reasonNotStorable(wall);
  if (reason !== undefined) return failedEnd('InvalidResult', `its wall ${reason}`);
  return { do: 'end', outcome: 'succeeded', wall: deepDifference(compared, wall) };
}

const failedEnd = (code: string, message: string): EndStep => ({
  do: 'end',
  outcome: 'failed',
  error: { code, message: message.replaceAll('\0', '').slice(0, MAX_MESSAGE_CHARS).toWellFormed() },
});
