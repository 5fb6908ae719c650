/**
 * Describes an error for the user of the command: what failed, where, and what to do next; and the
 * exit code. Pure.
 */
import { AddressError } from '../../client/address.ts';
import { ApiError, CredentialsError, NoAnswerError, UnexpectedAnswerError } from '../../client/client-errors.ts';
import { NameResolutionError } from '../../platform/dns/resolve.ts';
import { type FieldError, messageOf } from '../../platform/errors.ts';
import { EXIT, RefusedError, UsageError, WithheldError } from './command-errors.ts';
import { escapeControls } from './escape-controls.ts';

interface ErrorReport {
  code: string;
  message: string;
  hint?: string | undefined;
  address?: string | undefined;
  requestId?: string | undefined;
  exitCode: number;
}

const HOW_TO_SEE_CONTENTS =
  "An admin makes such a token: cnapi token create NAME --role operator. So does whoever can read an instance's configuration, with --config FILE, or --local for their npm start";

/** Explains why an agent may not know a kind of task. */
export const UNKNOWN_TASK_HINT =
  'The agent of the server runs without --containers, which VMs and images need; or it is simulated, or of an earlier version';

export function buildErrorReport(error: unknown): ErrorReport {
  if (error instanceof UsageError || error instanceof AddressError)
    return { code: 'Usage', message: error.message, exitCode: EXIT.usage };
  if (error instanceof CredentialsError) return { code: error.code, message: error.message, exitCode: EXIT.usage };
  if (error instanceof NoAnswerError) return { ...said(error), hint: hintOfSilence(error), exitCode: EXIT.noAnswer };
  if (error instanceof NameResolutionError) return { ...said(error), exitCode: EXIT.noAnswer };
  if (error instanceof ApiError)
    return { ...fieldsOf(error), hint: hintOf(error), exitCode: isWrongUsage(error) ? EXIT.usage : EXIT.failed };
  if (error instanceof UnexpectedAnswerError) return { ...fieldsOf(error), exitCode: EXIT.failed };
  if (error instanceof RefusedError) return { code: 'Refused', message: error.message, exitCode: EXIT.failed };
  if (error instanceof WithheldError)
    return { code: 'Forbidden', message: error.message, hint: HOW_TO_SEE_CONTENTS, exitCode: EXIT.failed };
  return { code: 'Failed', message: messageOf(error), exitCode: EXIT.failed };
}

/**
 * Formats a report as one line, plus a second one with the hint. API texts may contain any
 * character.
 */
export function errorReportText({ message, code, hint, address, requestId }: ErrorReport): string {
  const about = [address && `at ${address}`, requestId && `request ${requestId}`].filter(Boolean).join(', ');
  const details = [!isWrongValue({ code }) && code, about].filter(Boolean).join('; ');
  const coded = address === undefined ? message : `${message} (${details})`;
  return escapeControls(coded) + (hint === undefined ? '' : `\n  ${hint}`);
}

/** An instance refused a value. The message says it all, so the code is not shown. */
export const isWrongValue = ({ code }: Pick<ApiError, 'code'>): boolean =>
  code === 'InvalidParameters' || code === 'InvalidArgument';

/**
 * The rule of all commands for answers of instances: with these codes the command line is wrong and
 * nothing was changed, which is exit code 2. Many values are checked by instances only, and a whole
 * id is not looked up before the request: a first try changed no object that is not there.
 */
export const isWrongUsage = (error: ApiError): boolean =>
  error.code === 'ResourceNotFound' ||
  (!error.mayBeDone && (isWrongValue(error) || error.code === 'RequestEntityTooLarge'));

/** What an instance refused, and why. The fields are named, as far as they are known. */
export function errorReasonOf({ code, message, errors = [] }: ApiError | UnexpectedAnswerError): string {
  // The message of UniqueAttribute names the fields.
  const fields = code === 'UniqueAttribute' ? '' : errors.map(describeField).join('; ');
  if (fields === '') return message;
  // Status unknown alone reads as if there were no such server.
  if (code === 'ServerNotRunning')
    return `${errors.map(({ message: one }) => one).join('; ')}: its agent is not connected; this request started nothing`;
  return code === 'InvalidParameters' ? fields : `${message}: ${fields}`;
}

const describeField = ({ field, message }: FieldError): string =>
  message.startsWith(`${field} `) ? message : `${field}: ${message}`;

const said = (error: { code: string; message: string }) => ({ code: error.code, message: error.message });

const fieldsOf = (error: ApiError | UnexpectedAnswerError) => ({
  code: error.code,
  message: errorReasonOf(error),
  address: error.address,
  requestId: error.requestId,
});

function hintOfSilence({ attempts, mayHaveArrived }: NoAnswerError): string {
  const where = 'Name an instance with --url or CNAPI_URL; npm start runs some on this machine';
  if (mayHaveArrived) return 'The request may have been carried out: check before you repeat it';
  return attempts.length === 0 ? 'DNS names no live instance' : where;
}

/**
 * None for a 403: only the instance knows whether the role, the server or the group of the caller
 * is in the way, and its message says who can change that.
 */
function hintOf({ statusCode, code }: ApiError): string | undefined {
  if (statusCode === 401)
    return 'Give a token with CNAPI_TOKEN_FILE, CNAPI_TOKEN or ~/.config/cnapi/token (mode 0600); only the user who runs npm start has its token';
  if (code === 'ServerNotRunning') return 'cnapi server SERVER shows when and why its agent disconnected';
  if (code === 'ServerHasWorkflowJob')
    return 'To wait for it: cnapi workflow wait JOB; to cancel it: cnapi workflow cancel JOB';
  if (code === 'UnknownTask') return UNKNOWN_TASK_HINT;
  if (code === 'LastInstance') return 'Start another instance first';
  if (statusCode === 429) return 'Ask less often, or raise the limits in the configuration of the instances';
  return undefined;
}
