/**
 * A contract: one value that says how a route of the REST API is called, what it takes and what it
 * answers. It has no handler. Everything that knows the API derives from it: the server validates
 * by it and binds a handler to it (lib/control/http/route.ts), the client calls by it, `openapi.ts`
 * describes it, and docs/rest-api.md is generated from it. Each noun's contracts are in a file of
 * their own; `../contracts.ts` is the table of all.
 */
import { z } from 'zod';
import type { ErrorCode } from './errors.ts';
import type { RequiredRole } from './roles.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/**
 * `server`: the server named by `server_uuid` exists (else 404). `running`: its status is also
 * `running` (else 409).
 */
type Precondition = 'server' | 'running';

/**
 * The source of a route. Triton's routes answer a type failure with 500, as its clients
 * expect.
 */
type Origin = 'reference' | 'own';

/** Requests that last as long as the caller wants, and are limited per caller. */
export type LongRequestKind = 'wait' | 'stream';

const TAGS = {
  misc: 'The instance that answers: health, version, log level, metrics',
  servers: 'The servers, their properties and their status',
  vms: 'The VMs of servers: made, changed and stopped by tasks of their agents',
  zfs: 'ZFS of a server: its pools, datasets and snapshots',
  placement: 'On which server a VM is made, and how much room servers have',
  tasks: "Work for one server's agent: durable, with exactly one end",
  workflows: 'Work of several steps on one server, such as its reboot',
  annealer: 'Roles bound to servers in a graph, and the runs that carry them out',
  'push jobs': 'One command on many servers, after enough of them have agreed',
  pushy: 'The same jobs, for clients of Chef Push Jobs',
  waitlist: 'Tickets: locks with a queue, across all instances',
  instances: 'The instances of the control plane',
  access: 'Tokens, and the audit of changes',
  events: 'Changes of the whole fleet as they happen',
} as const;

/** Tag of a noun of the bucket store: its plural, and what it is. */
interface Tag {
  name: string;
  description: string;
}

export const tagOf = ({ tag }: Pick<Contract, 'tag'>): Tag =>
  typeof tag === 'string' ? { name: tag, description: TAGS[tag] } : tag;

/** The tags that the contracts have, in the order of `TAGS`, then of the contracts. */
export function tagsOf(contracts: readonly Contract[]): Tag[] {
  const used = new Map(contracts.map(tagOf).map((tag) => [tag.name, tag]));
  const known = Object.keys(TAGS).flatMap((name) => used.get(name) ?? []);
  return [...known, ...[...used.values()].filter(({ name }) => !(name in TAGS))];
}

export interface ResponseSpec<Schema extends z.ZodType = z.ZodType> {
  description: string;
  /** Schema of the body; of each event, for `text/event-stream`. Absent: no body, or an error's. */
  schema?: Schema;
  /** Shown in the OpenAPI document; must satisfy `schema`. */
  example?: unknown;
  /** Default application/json. */
  contentType?: string;
  /** Codes that an error may have, beside those that any route may answer. */
  codes?: readonly ErrorCode[];
  /** What each header says. */
  headers?: Readonly<Record<string, string>>;
}

export interface Contract {
  /** The operationId; the audit records it as the action. */
  name: string;
  method: Method;
  /** The path, with `:name` for each path parameter. */
  path: string;
  summary: string;
  tag: keyof typeof TAGS | Tag;
  origin: Origin;
  /**
   * All parameters: path parameters by name; the others by query (GET, DELETE) or body (POST, PUT),
   * or either.
   */
  params: z.ZodObject;
  /**
   * How the parameters must fit together: also called with parameters that are wrong by themselves.
   */
  findIssues?: (params: Readonly<Record<string, unknown>>) => readonly Issue[];
  /** Ignores undeclared parameters instead of refusing them. */
  lenient?: boolean;
  /**
   * The handler stores undeclared parameters, of the query too: the whole body is one value. With
   * `lenient`.
   */
  takesAnyBody?: boolean;
  /** Query parameters that may be repeated; their values are joined by commas. */
  repeatable?: readonly string[];
  /**
   * Triton's process crashes on parameters that fail their rules; here they are 400 for any
   * origin.
   */
  referenceAborts?: boolean;
  /** Headers that the route reads, and what they do. */
  requestHeaders?: Readonly<Record<string, string>>;
  preconditions: readonly Precondition[];
  /** The required role; absent: `reader` for GET and `operator` for all else. */
  requiredRole?: RequiredRole;
  responses: Readonly<Record<number, ResponseSpec>>;
  longRequest?: LongRequestKind;
  /**
   * Also takes requests that a user or client of the organization in the path, `:organization`, has
   * signed in the Chef API protocol. The handler decides what it may do.
   */
  signed?: boolean;
}

/** Why a parameter is refused. */
export interface Issue {
  field: string;
  message: string;
}

/**
 * The parsed parameters, if there are no issues: of each parameter, and of how they fit together.
 */
export function checkParams<Params extends z.ZodObject>(
  { params, findIssues }: Pick<Contract, 'findIssues'> & { params: Params },
  given: Readonly<Record<string, unknown>>,
): { data: z.output<Params> | undefined; issues: readonly (Issue & { isBadRequest: boolean })[] } {
  const { data, error } = params.safeParse(given);
  const issues = (error?.issues ?? []).map((issue) => ({
    field: String(issue.path[0] ?? ''),
    message: issue.message,
    isBadRequest: issue.code === 'custom' && issue.params?.statusCode === 400,
  }));
  const unfit = (findIssues?.(given) ?? []).map((issue) => ({ ...issue, isBadRequest: true }));
  return { data, issues: [...issues, ...unfit] };
}

type Definition = Omit<Contract, 'name'>;

/** Names each contract by its key. */
export function contracts<const Table extends Readonly<Record<string, Definition>>>(
  table: Table,
): { readonly [Name in keyof Table]: Table[Name] & { readonly name: Name & string } } {
  const named = Object.entries(table).map(([name, definition]) => [name, { name, ...definition }]);
  return Object.fromEntries(named);
}

/** An error answer: when it is given, and with which codes. */
export function errorResponse<const Codes extends readonly ErrorCode[]>(description: string, ...codes: Codes) {
  return { description, codes };
}

/**
 * The object of an answer. Declare each field that a route answers. Clients keep undeclared fields,
 * because a later version may have more.
 */
export const answer = <Shape extends z.ZodRawShape>(shape: Shape) => z.looseObject(shape);

/** The object of an answer that also has fields that are declared nowhere. */
export const extensibleObject = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.looseObject(shape).meta({ [EXTENSIBLE]: true });

/** Marks the schema of an object with undeclared fields. */
export const EXTENSIBLE = 'x-extensible';

export function requiredRoleOf({ requiredRole, method }: Pick<Contract, 'requiredRole' | 'method'>): RequiredRole {
  return requiredRole ?? (method === 'GET' ? 'reader' : 'operator');
}

/** Whether a parameter may be in the body. Bodies of other requests are dropped. */
export function takesBody({ method, path, params, takesAnyBody }: Contract): boolean {
  if (method === 'GET') return false;
  const inPath = pathParamsOf(path);
  return takesAnyBody === true || Object.keys(params.shape).some((name) => !inPath.includes(name));
}

/** The parameter names in a path such as `/tasks/:taskid/wait`. */
export function pathParamsOf(path: string): string[] {
  return [...path.matchAll(/:(\w+)/g)].map((match) => match[1] as string);
}

/** A contract's parameters as its handler receives them. */
export type ParamsOf<One extends Contract> = z.output<One['params']>;

/** A contract's parameters as a caller writes them. */
export type RequestOf<One extends Contract> = z.input<One['params']>;

type SchemaOf<One> = One extends { schema: infer Schema extends z.ZodType } ? Schema : never;
type Schemas<One extends Contract> = { [Status in keyof One['responses']]: SchemaOf<One['responses'][Status]> };

/** The schema of a contract's body, whatever the status. */
export type BodySchemaOf<One extends Contract> = Schemas<One>[keyof One['responses']];

/**
 * A type without the index signatures of loose objects, at any depth: a typo in the name of a field
 * is an error.
 */
export type Known<Value> = Value extends readonly (infer Element)[]
  ? Known<Element>[]
  : Value extends object
    ? [keyof Declared<Value>] extends [never]
      ? Value
      : { [Name in keyof Declared<Value>]: Known<Declared<Value>[Name]> }
    : Value;

type Declared<Value> = { [Name in keyof Value as IsDeclared<Name>]: Value[Name] };
type IsDeclared<Name> = string extends Name ? never : number extends Name ? never : Name;
