/** The form that Chef gives to all errors of /pushy. */
import type { FieldError } from '../../platform/errors.ts';
import { type ChefError, MAX_CHEF_BODY_BYTES } from '../../protocol/api/chef.ts';
import { errorAnswer } from '../http/answer/error-mapping.ts';
import type { RouteAnswer } from '../http/route.ts';
import { InvalidArgumentError } from '../request-errors.ts';
import { InvalidJobError } from './pushy-errors.ts';

/**
 * As in Chef, what is wrong with a job is a text, and every other error a list with one
 * text. Beside Chef's texts, `field` names what is wrong with a job. A parameter that is repeated or
 * cannot be stored is 409 in Triton's CNAPI, and a bad request here.
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
    ...(field === undefined ? {} : { field }),
    ...(detail === undefined ? {} : { detail }),
  };
}
