/**
 * Why the task of a VM or an image failed, in the words of the command line, and what to do. Pure.
 */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { errorCodeOf, errorOf } from '../output/task-end.ts';
import { UNKNOWN_TASK_HINT } from '../terminal/error-report.ts';

/** Explanations of errors that contain nothing beyond their code. */
const REASONS: Readonly<Record<string, string>> = {
  VmNotRunning: 'it does not run',
  VmAlreadyRunning: 'it runs already',
};

/**
 * `failed`: the beginning of the sentence, for example `web could not be stopped`. `end`: the
 * result of `endOfTask`.
 */
export function vmFailureText(failed: string, end: JsonObject, see: string): string {
  const code = errorCodeOf(end) ?? '';
  const reason = REASONS[code] ?? itself(errorOf(end) ?? 'no error given');
  const hint = hintOf(code, reason);
  return `${failed}: ${reason}; see ${see}${hint === undefined ? '' : `\n  ${hint}`}`;
}

/** The agent names the VM by its uuid, which follows the name that the user gave. */
const itself = (reason: string): string => reason.replace(/^VM [0-9a-f-]{36} /, 'it ');

function hintOf(code: string, reason: string): string | undefined {
  if (code === 'UnknownTask') return UNKNOWN_TASK_HINT;
  if (code === 'ImageNotFound') return 'cnapi image load SERVER SOURCE loads an image';
  if (code === 'InvalidParameters' && reason.includes('docker:cmd'))
    return 'The image names no program; add --cmd COMMAND';
  return undefined;
}
