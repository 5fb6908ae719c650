/**
 * Compares real answers with the contracts of the API: the status is declared, the body has the
 * declared form, and no field is undeclared. The product does not check its answers; tests do.
 */
import { z } from 'zod';
import { allContracts } from '../../lib/protocol/api/all-contracts.ts';
import { type Contract, EXTENSIBLE } from '../../lib/protocol/api/contract/contract.ts';
import { codesOf, errorBody, errorBodyWith } from '../../lib/protocol/api/contract/errors.ts';

interface RealAnswer {
  status: number;
  contentType: string | null | undefined;
  text: string;
}

const PATTERNS = allContracts.map((contract) => ({
  contract,
  pattern: new RegExp(`^${contract.path.replace(/:\w+/g, '[^/]+')}/?$`, 'i'),
}));

/** The contract of the route that a request reaches, if that can be determined without a router. */
export function contractOf(method: string, target: string): Contract | undefined {
  const path = (target.split(/[?#]/, 1)[0] ?? '').replace(/\/+/g, '/');
  const found = PATTERNS.filter(({ contract, pattern }) => contract.method === method && pattern.test(path));
  // If `/vms/nics/update` and `/vms/:vm_uuid/update` both match, the router prefers the one with
  // fewer parameters.
  const parameters = (one: Contract) => one.path.split('/:').length;
  return found.map(({ contract }) => contract).sort((one, other) => parameters(one) - parameters(other))[0];
}

/** Names of the contracts that had an answer below 400 which was checked in this process. */
export const answered = new Set<string>();

/** @throws Error when the answer does not match the contract of its route; ignores other paths. */
export function checkAnswer(method: string, target: string, answer: RealAnswer): void {
  const contract = contractOf(method, target);
  const mismatch = contract && mismatchOf(contract, answer);
  if (mismatch !== undefined) throw new Error(mismatch);
}

/** Why the answer does not match its contract; undefined if it does. */
export function mismatchOf(contract: Contract, { status, contentType, text }: RealAnswer): string | undefined {
  const declared = contract.responses[status];
  const about = `${contract.name} ${status}`;
  if (status >= 400 && declared?.schema === undefined) {
    const schema =
      status in contract.responses || status in COMMON ? errorBodyWith(codesOf(status, declared?.codes)) : errorBody;
    return complaint(about, schema, text);
  }
  if (declared === undefined) return `${about} is not declared`;
  const { schema, contentType: type = 'application/json' } = declared;
  if (schema === undefined) {
    if (text === '') answered.add(contract.name);
    return text === '' ? undefined : `${about} has a body: ${text.slice(0, 200)}`;
  }
  if (contentType?.split(';')[0] !== type) return `${about} has content type ${contentType}`;
  const mismatch =
    type === 'application/json'
      ? complaint(about, strictly(schema), text)
      : type === 'text/event-stream'
        ? mismatchOfEvents(about, schema, text)
        : undefined;
  if (mismatch === undefined) answered.add(contract.name);
  return mismatch;
}

/** Statuses that the document declares for routes that require a token. */
const COMMON = { 401: true, 403: true, 429: true };

function complaint(about: string, schema: z.ZodType, text: string): string | undefined {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return `${about} is not JSON: ${text.slice(0, 200)}`;
  }
  const { error } = schema.safeParse(body);
  return error && `${about} does not match its contract: ${z.prettifyError(error)}\n${text.slice(0, 1000)}`;
}

function mismatchOfEvents(about: string, schema: z.ZodType, text: string): string | undefined {
  const frames = text.split('\n\n').slice(0, -1);
  const sent = frames.map((frame) => Object.fromEntries(frame.split('\n').map(fieldOf)));
  const mismatches = sent.flatMap(({ id, event, data }) =>
    event === undefined
      ? []
      : (complaint(about, strictly(schema), JSON.stringify({ id, event, data: JSON.parse(data ?? '') })) ?? []),
  );
  return mismatches[0];
}

function fieldOf(line: string): [name: string, value: string] {
  const at = line.indexOf(': ');
  return [line.slice(0, at), line.slice(at + 2)];
}

const strict = new WeakMap<z.ZodType, z.ZodType>();

/** The schema without undeclared fields, except where it is marked as open. */
function strictly(schema: z.ZodType): z.ZodType {
  const known = strict.get(schema);
  if (known !== undefined) return known;
  const described = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override({ jsonSchema }) {
      if (jsonSchema.properties !== undefined && jsonSchema[EXTENSIBLE] !== true)
        jsonSchema.additionalProperties = false;
    },
  });
  const made = z.fromJSONSchema(described as never);
  strict.set(schema, made);
  return made;
}
