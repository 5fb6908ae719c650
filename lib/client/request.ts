/** Makes the request of a contract, and says what its answer holds. Pure; used by client.ts. */
import type { z } from 'zod';
import {
  type BodySchemaOf,
  type Contract,
  type Method,
  type RequestOf,
  takesBody,
} from '../protocol/api/contract/contract.ts';

/**
 * A contract's parameters; a text that is a list of texts, separated by commas, may be given as the
 * list.
 */
export type Params<One extends Contract> = {
  [Name in keyof RequestOf<One>]:
    | RequestOf<One>[Name]
    | (string extends RequestOf<One>[Name] ? readonly string[] : never);
};

/** What a contract answers when it does what was asked. */
export type BodyOf<One extends Contract> = z.output<BodySchemaOf<One>>;

export function buildRequest<One extends Contract>(
  contract: One,
  params: Params<One>,
): { method: Method; path: string; body?: string } {
  const { method } = contract;
  const others: Record<string, unknown> = { ...params };
  const path = contract.path.replace(/:(\w+)/g, (_, name: string) => {
    const value = String(others[name]);
    delete others[name];
    return encodeURIComponent(value);
  });
  if (method === 'GET' || method === 'DELETE') return { method, path: path + queryOf(others) };
  return { method, path, ...(takesBody(contract) ? { body: JSON.stringify(others) } : {}) };
}

/** The schema of the body of a contract's success. */
export function bodySchemaOf<One extends Contract>({ name, responses }: One): BodySchemaOf<One> {
  const [schema] = Object.entries(responses).flatMap(([status, one]) =>
    Number(status) < 300 ? (one.schema ?? []) : [],
  );
  if (schema === undefined) throw new Error(`${name} is answered without a body`);
  return schema as BodySchemaOf<One>;
}

/** A later version may send events that this one does not know. */
export const isKnown = (names: readonly string[], name: unknown): boolean => names.includes(String(name));

function queryOf(params: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined) continue;
    query.append(name, Array.isArray(value) ? value.join(',') : String(value));
  }
  const text = query.toString();
  return text === '' ? '' : `?${text}`;
}
