/**
 * Describes an error for the user of the command: what failed, where, and what to do next; and the
 * exit code. Pure.
 */
import { AddressError } from '../../client/address.ts';
import { ApiError, CredentialsError, NoAnswerError, UnexpectedAnswerError } from '../../client/client-errors.ts';
import { NameResolutionError } from '../../platform/dns/resolve.ts';
import { messageOf } from '../../platform/errors.ts';
import { escapeControls } from './escape-controls.ts';
import { EXIT, RefusedError, UsageError, WithheldError } from './usage-error.ts';

interface ErrorReport {
  code: string;
  message: string;
  hint?: string | undefined;
  address?: string | undefined;
  requestId?: string | undefined;
  exitCode: number;
}

const HOW_TO_SEE_CONTENTS =
  "An admin makes such a token: cnapi token create NAME --role operator. So does whoever can read an instance's configuration, with --config FILE";

export function errorReportOf(error: unknown): ErrorReport {
  if (error instanceof UsageError || error instanceof AddressError)
    return { code: 'Usage', message: error.message, exitCode: EXIT.usage };
  if (error instanceof CredentialsError) return { code: error.code, message: error.message, exitCode: EXIT.usage };
  if (error instanceof NoAnswerError) return { ...said(error), hint: hintOfSilence(error), exitCode: EXIT.noAnswer };
  if (error instanceof NameResolutionError) return { ...said(error), exitCode: EXIT.noAnswer };
  if (error instanceof ApiError)
    return { ...fieldsOf(error), hint: hintOf(error), exitCode: isUnknown(error) ? EXIT.usage : EXIT.failed };
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
  const coded = address === undefined ? message : `${message} (${code}${about ? `; ${about}` : ''})`;
  return escapeControls(coded) + (hint === undefined ? '' : `\n  ${hint}`);
}

/** A whole id is not looked up before the request: the instance says that there is no such object. */
const isUnknown = ({ code }: ApiError): boolean => code === 'ResourceNotFound';

const said = (error: { code: string; message: string }) => ({ code: error.code, message: error.message });

function fieldsOf(error: ApiError | UnexpectedAnswerError) {
  // The message of UniqueAttribute names the fields.
  const errors = error.code === 'UniqueAttribute' ? [] : (error.errors ?? []);
  const fields = errors.map(({ field, message }) => `${field}: ${message}`).join('; ');
  const message = fields ? `${error.message}: ${fields}` : error.message;
  return { code: error.code, message, address: error.address, requestId: error.requestId };
}

function hintOfSilence({ attempts, mayHaveArrived }: NoAnswerError): string {
  const where = 'Name an instance with --url or CNAPI_URL; npm start runs some on this machine';
  if (mayHaveArrived) return 'The request may have been carried out: check before you repeat it';
  return attempts.length === 0 ? 'DNS names no live instance' : where;
}

/**
 * None for a 403: only the instance knows whether the role, the server or the group of the caller is
 * in the way, and its message says who can change that.
 */
function hintOf({ statusCode, code }: ApiError): string | undefined {
  if (statusCode === 401)
    return 'Give a token with CNAPI_TOKEN_FILE, CNAPI_TOKEN or ~/.config/cnapi/token (mode 0600); only the user who runs npm start has its token';
  if (code === 'ServerNotRunning') return 'cnapi server SERVER shows when and why its agent disconnected';
  if (code === 'LastInstance') return 'Start another instance first';
  if (statusCode === 429) return 'Ask less often, or raise the limits in the configuration of the instances';
  return undefined;
}
