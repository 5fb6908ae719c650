/**
 * Merges the parameters of path, query and body into one flat namespace, and validates them by a
 * route's schema. Pure. As in Triton's CNAPI: path before query before body; undeclared parameters
 * are refused by name before anything else; all failures are listed. Names such as `__proto__` are
 * ordinary names here: the map has no prototype.
 */
import type { z } from 'zod';
import { type FieldError, InvalidParametersError } from '../../../platform/errors.ts';
import { type Contract, checkParams, type Issue, pathParamsOf } from '../../../protocol/api/contract/contract.ts';
import { reasonNotStorable } from '../../../protocol/json/storable.ts';
import { hasTooManyParams, MAX_PARAMS } from '../../../protocol/url-encoded.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import { printable } from '../http-errors.ts';

type MergedParams = Record<string, unknown>;

interface ParamSources {
  path: Record<string, string | undefined>;
  /** Without the question mark. */
  query: string;
  /** Names that may be repeated in the query; their values are joined by commas. */
  repeatable?: readonly string[] | undefined;
  body: Record<string, unknown>;
}

/** @throws InvalidArgumentError for a repeated parameter, and for too many of them. */
export function mergeParams({ path, query, repeatable, body }: ParamSources): MergedParams {
  // The path's values always win, also empty ones: else a body could name another object than the
  // path.
  const merged: MergedParams = Object.assign(Object.create(null), path);
  for (const source of [Object.entries(fromUrlEncoded(query, repeatable)), Object.entries(body)]) {
    for (const [name, value] of source) {
      if (!Object.hasOwn(path, name) && !merged[name] && value !== undefined) merged[name] = value;
    }
  }
  return merged;
}

/** Parses query strings and form bodies. @throws InvalidArgumentError */
export function fromUrlEncoded(encoded: string, repeatable: readonly string[] = []): MergedParams {
  if (hasTooManyParams(encoded)) throw new InvalidArgumentError(`More than ${MAX_PARAMS} parameters`);
  const params: MergedParams = Object.create(null);
  for (const [name, value] of new URLSearchParams(encoded)) {
    if (!(name in params)) params[name] = value;
    else if (repeatable.includes(name)) params[name] = `${params[name]},${value}`;
    else throw new InvalidArgumentError(`${printable(name)} is given more than once`);
  }
  return params;
}

/** @throws InvalidArgumentError naming the first parameter that a strict route does not declare. */
export function checkDeclared(route: Contract, params: MergedParams): void {
  if (route.lenient === true) return;
  const unknownName = Object.keys(params).find((name) => !Object.hasOwn(route.params.shape, name));
  if (unknownName !== undefined)
    throw new InvalidArgumentError(`${printable(unknownName)} is not an explicitly defined parameter`);
}

/**
 * Checks only what the handler receives; ignored parameters are not checked.
 * @throws InvalidArgumentError naming the first parameter that the database cannot store
 */
export function checkStorable(route: Contract, params: MergedParams): void {
  for (const name in params) {
    if (route.takesAnyBody !== true && !Object.hasOwn(route.params.shape, name)) continue;
    const reason = reasonNotStorable(name) ?? reasonNotStorable(params[name]);
    if (reason !== undefined) throw new InvalidArgumentError(`${printable(name)} ${reason}`);
  }
}

/**
 * Only the ids of the path, which are checked before their objects are looked up. @throws
 * InvalidArgumentError
 */
export function parsePathParams(route: Contract, params: MergedParams): Record<string, string> {
  const parsed: Record<string, string> = {};
  for (const name of pathParamsOf(route.path)) {
    const result = (route.params.shape[name] as z.ZodType<string>).safeParse(params[name]);
    if (!result.success) throw invalidId(name, result.error);
    parsed[name] = result.data;
  }
  return parsed;
}

/**
 * All parameters, by the route's schema.
 * @throws InvalidParametersError: 500 where Triton's CNAPI uses it (its clients expect it), 400 on
 * own routes.
 */
export function parseParams(route: Contract, params: MergedParams): z.output<z.ZodObject> {
  const { data, issues } = checkParams(route, { ...params });
  if (data !== undefined && issues.length === 0) return data;
  const usual = route.origin === 'reference' && route.referenceAborts !== true ? 500 : 400;
  const isBadRequest = issues.every((issue) => issue.isBadRequest);
  throw new InvalidParametersError(isBadRequest ? 400 : usual, fieldErrors(issues));
}

/**
 * Each failure of each field, as Triton's CNAPI lists them; once if many elements of a list fail
 * alike.
 */
function fieldErrors(issues: readonly Issue[]): FieldError[] {
  const errors = new Map<string, FieldError>();
  for (const { field, message } of issues) errors.set(`${field} ${message}`, { field, code: 'Invalid', message });
  return [...errors.values()];
}

function invalidId(name: string, error: z.ZodError): InvalidArgumentError {
  const message = error.issues[0]?.message ?? 'is not valid';
  return new InvalidArgumentError(`Invalid ${name}`, { errors: [{ field: name, code: 'Invalid', message }] });
}
