/**
 * What a run does, and what its end means. Pure.
 *
 * A script gets its inputs as JSON in the variable NODEROLE_INPUTS. It may print one line of JSON
 * as the last line of its standard output: `{"wall": {…}}`, what it has found or made.
 */
import { z } from 'zod';
import type { RoleDocument } from '../../protocol/api/documents/annealer.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { maskParams } from '../../protocol/secret-params.ts';
import { endError, type TaskRow } from '../tasks/store/task.ts';
import { deepDifference } from './merge.ts';

/** A run ends: with a wall, with an error, or with neither, which keeps the wall that it has. */
interface EndStep {
  do: 'end';
  wall?: JsonObject;
  error?: RunError;
}

interface TaskStep {
  do: 'begin-task';
  inputs: JsonObject;
  params: JsonObject;
  maskedParams: JsonObject;
  timeoutMs: number;
}

export type RunStep = EndStep | TaskStep;

interface RunError {
  code: string;
  message: string;
}

/** A variable of the environment of a program is at most 128 KiB on Linux. */
const MAX_INPUT_BYTES = 100_000;
const MAX_MESSAGE_CHARS = 500;

export const roleIsMissing = (): EndStep => ends('RoleMissing', 'its role does not exist any more');

/**
 * How a run begins; `runCount`: successful runs of its noderole before. `read-inputs`:
 * `decideWithInputs` goes on.
 */
export function decideRun(role: RoleDocument, runCount: number): EndStep | 'read-inputs' {
  if (role.flags.includes('destructive') && runCount > 0) return { do: 'end' };
  return role.jig === 'noop' ? { do: 'end', wall: {} } : 'read-inputs';
}

/** How a run goes on once its inputs are known. */
export function decideWithInputs(role: RoleDocument, inputs: JsonObject): RunStep {
  if (role.jig === 'test') return decideTest(inputs);
  const text = JSON.stringify(inputs);
  if (Buffer.byteLength(text) > MAX_INPUT_BYTES)
    return ends('InputsTooLarge', `its inputs have ${Buffer.byteLength(text)} bytes; at most ${MAX_INPUT_BYTES} fit`);
  const params = {
    secret_params: ['/env/NODEROLE_INPUTS'],
    script: role.script ?? '',
    args: [],
    env: { NODEROLE_INPUTS: text },
  };
  return { do: 'begin-task', inputs, params, maskedParams: maskParams(params), timeoutMs: role.timeout * 1000 };
}

const testInputs = z.object({ fail: z.string().optional(), wall: z.record(z.string(), z.unknown()).optional() });

/** `{"test": {"fail": "why"}}` fails, `{"test": {"wall": {…}}}` returns that. */
function decideTest(inputs: JsonObject): RunStep {
  const { success, data } = testInputs.safeParse(inputs.test ?? {});
  if (!success) return ends('InvalidInputs', 'test is not an object with fail, a text, or wall, an object');
  if (data.fail !== undefined) return ends('TestFailed', data.fail);
  return { do: 'end', wall: deepDifference(inputs, data.wall ?? {}) };
}

type EndedTask = Pick<TaskRow, 'outcome' | 'error' | 'result' | 'cancel_requested_at'>;

const scriptResult = z.object({ wall: z.record(z.string(), z.unknown()).default({}) });

/** `task` undefined: its record was deleted. */
export function decideTaskEnd(task: EndedTask | undefined, inputs: JsonObject): EndStep {
  if (task === undefined) return ends('OutcomeUnknown', 'the record of its task was deleted');
  if (task.outcome === 'failure') {
    const { code, message } = endError(task) ?? { code: 'Failed', message: 'no error given' };
    return ends(code, message);
  }
  const { exitCode, stdout = '', stderr = '' } = task.result ?? {};
  if (exitCode !== 0) {
    const last = String(stderr).trim().slice(-MAX_MESSAGE_CHARS);
    return ends('ScriptFailed', `the script ended with exit code ${exitCode}${last === '' ? '' : `: ${last}`}`);
  }
  return endOfOutput(String(stdout), inputs);
}

function endOfOutput(stdout: string, inputs: JsonObject): EndStep {
  const line = stdout.trimEnd().split('\n').at(-1)?.trim() ?? '';
  if (!line.startsWith('{')) return { do: 'end', wall: {} };
  const { success, data } = scriptResult.safeParse(parsed(line));
  return success
    ? { do: 'end', wall: deepDifference(inputs, data.wall) }
    : ends('InvalidResult', 'the last line of its output is not JSON such as {"wall": {"port": 80}}');
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

const ends = (code: string, message: string): EndStep => ({
  do: 'end',
  error: { code, message: message.slice(0, MAX_MESSAGE_CHARS).toWellFormed() },
});
