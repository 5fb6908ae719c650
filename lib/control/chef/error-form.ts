/** The form that Chef gives to all errors of /pushy. */
import { withoutUndefined } from '../../platform/defined-fields.ts';
import type { FieldError } from '../../platform/errors.ts';
import { type ChefError, MAX_CHEF_BODY_BYTES } from '../../protocol/api/chef.ts';
import { errorAnswer } from '../http/answer/error-mapping.ts';
import type { RouteAnswer } from '../http/route.ts';
import { InvalidArgumentError } from '../request-errors.ts';
import { InvalidJobError } from './pushy-errors.ts';

/**
 * Gives an error the form that Chef's server gives it: a text if a job is invalid, otherwise a list
 * with one text. In addition to Chef's text, `field` names the invalid field of a job. A parameter
 * that is repeated or cannot be stored is a bad request here, and 409 in Triton's CNAPI.
 */
export function chefErrorAnswer(error: unknown): RouteAnswer {
  const answer = errorAnswer(error);
  const status = error instanceof InvalidArgumentError ? 400 : answer.status;
  return { ...answer, status, body: bodyOf(error, answer) };
}

function bodyOf(error: unknown, { status, body }: RouteAnswer): ChefError {
  if (status === 413) return { error: `JSON must be no more than ${MAX_CHEF_BODY_BYTES} bytes.` };
  const { message, errors = [] } = body as { message: string; errors?: readonly FieldError[] };
  const fields = errors.map((one) => `${one.field} ${one.message}`);
  if (!(error instanceof InvalidJobError)) return { error: [[message, ...fields].join(': ')] };
  const { field, detail } = error;
  return {
    error: message,
    ...withoutUndefined({ field, detail }),
  };
}
