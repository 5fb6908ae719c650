/**
 * One flat namespace of parameters out of path, query and body, and its validation by a route's schema. Pure.
 * As the reference has it: path before query before body; undeclared parameters refused by name before anything else;
 * all failures listed. Names such as `__proto__` are names like any other here: the map has no prototype.
 */
import type { z } from 'zod';
import type { FieldError } from '../errors.ts';
import { reasonNotStorable } from '../wire/storable.ts';
import { InvalidArgumentError, InvalidParametersError } from './http-errors.ts';
import { pathParamsOf, type Route } from './route.ts';

export type Params = Record<string, unknown>;

export const MAX_PARAMS = 1000;

export interface ParamSources {
  path: Record<string, string | undefined>;
  /** Without the question mark. */
  query: string;
  /** Names that may be given more than once in the query; they are joined by commas. */
  repeatable?: readonly string[] | undefined;
  body: Record<string, unknown>;
}

/** @throws InvalidArgumentError for a parameter that is given twice, too many of them, and what no database can keep. */
export function mergeParams({ path, query, repeatable, body }: ParamSources): Params {
  // Whatever a path says of its parts holds, nothing included: else a body could name another object than the path.
  const merged: Params = Object.assign(Object.create(null), path);
  for (const source of [Object.entries(fromUrlEncoded(query, repeatable)), Object.entries(body)]) {
    for (const [name, value] of source) {
      if (!Object.hasOwn(path, name) && !merged[name] && value !== undefined) merged[name] = value;
    }
  }
  for (const [name, value] of Object.entries(merged)) refuseUnstorable(name, value);
  return merged;
}

/** Query strings and form bodies. @throws InvalidArgumentError */
export function fromUrlEncoded(encoded: string, repeatable: readonly string[] = []): Params {
  const params: Params = Object.create(null);
  let count = 0;
  for (const [name, value] of new URLSearchParams(encoded)) {
    if (++count > MAX_PARAMS) throw new InvalidArgumentError(`More than ${MAX_PARAMS} parameters`);
    if (!(name in params)) params[name] = value;
    else if (repeatable.includes(name)) params[name] = `${params[name]},${value}`;
    else throw new InvalidArgumentError(`${printable(name)} is given more than once`);
  }
  return params;
}

/** @throws InvalidArgumentError naming the first parameter that a strict route does not declare. */
export function refuseUndeclared(route: Route, params: Params): void {
  if (route.lenient === true) return;
  const stranger = Object.keys(params).find((name) => !Object.hasOwn(route.params.shape, name));
  if (stranger !== undefined)
    throw new InvalidArgumentError(`${printable(stranger)} is not an explicitly defined parameter`);
}

/** The ids of the path alone, which are checked before the objects that they name are looked for. @throws InvalidArgumentError */
export function parsePathParams(route: Route, params: Params): Record<string, string> {
  const parsed: Record<string, string> = {};
  for (const name of pathParamsOf(route.path)) {
    const result = (route.params.shape[name] as z.ZodType<string>).safeParse(params[name]);
    if (!result.success) throw invalidId(name, result.error);
    parsed[name] = result.data;
  }
  return parsed;
}

/**
 * All parameters by the route's schema.
 * @throws InvalidParametersError: 500 where the reference answers so (its clients know it), 400 on our own.
 */
export function parseParams(route: Route, params: Params): z.output<z.ZodObject> {
  const result = route.params.safeParse({ ...params });
  if (result.success) return result.data;
  const usual = route.origin === 'reference' && route.referenceAborts !== true ? 500 : 400;
  const isBadRequest = result.error.issues.every(
    (issue) => issue.code === 'custom' && issue.params?.statusCode === 400,
  );
  throw new InvalidParametersError(isBadRequest ? 400 : usual, onePerField(result.error.issues));
}

function refuseUnstorable(name: string, value: unknown): void {
  const reason = reasonNotStorable({ [name]: value });
  if (reason !== undefined) throw new InvalidArgumentError(`${printable(name)} ${reason}`);
}

function onePerField(issues: readonly z.core.$ZodIssue[]): FieldError[] {
  const errors = new Map<string, FieldError>();
  for (const issue of issues) {
    const field = String(issue.path[0] ?? '');
    if (!errors.has(field)) errors.set(field, { field, code: 'Invalid', message: issue.message });
  }
  return [...errors.values()];
}

function invalidId(name: string, error: z.ZodError): InvalidArgumentError {
  const message = error.issues[0]?.message ?? 'is not valid';
  return new InvalidArgumentError(`Invalid ${name}`, { errors: [{ field: name, code: 'Invalid', message }] });
}

function printable(name: string): string {
  return name.replace(/[^\x20-\x7e]/g, '?').slice(0, 100);
}
