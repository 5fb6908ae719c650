/**
 * The secret params of a task. Any task's params may hold `secret_params`, a list of JSON Pointers
 * (RFC 6901) into these params, such as `/env/PASSWORD`. The agent receives the values. All other
 * readers see `(secret)` in their place, and the values are deleted when the task ends. Pure; used
 * where tasks are created, and by the agent's journal and history.
 */
import type { JsonObject } from './json/bounded-json.ts';
import type { TaskName } from './task-name.ts';

const SECRET_PARAMS = 'secret_params';
/** What callers see in place of a secret value. */
export const SECRET_MASK = '(secret)';

export const MAX_SECRET_POINTERS = 100;
const MAX_POINTER_CHARS = 1000;

/**
 * Returns why `secret_params` is invalid; undefined when it is valid. A pointer to a missing value
 * is an error, because the intended secret would be shown.
 */
export function reasonNotMaskable(params: JsonObject): string | undefined {
  if (!Object.hasOwn(params, SECRET_PARAMS)) return undefined;
  const pointers: unknown = params[SECRET_PARAMS];
  if (!Array.isArray(pointers) || pointers.length > MAX_SECRET_POINTERS)
    return `is not a list of at most ${MAX_SECRET_POINTERS} texts`;
  for (const pointer of pointers) {
    const keys = keysOf(pointer);
    if (keys === undefined) return 'holds what is not a JSON Pointer such as /env/PASSWORD';
    if (keys[0] === SECRET_PARAMS || parentOf(params, keys) === undefined)
      return `names ${JSON.stringify(pointer).slice(0, 200)}, which these params do not hold`;
  }
  return undefined;
}

/** The parameters of tasks that hold a URL. */
const URL_PARAMS: Readonly<Record<string, string | undefined>> = {
  agent_install: 'package_file',
  image_ensure_present: 'url',
} satisfies Partial<Record<TaskName, string>>;

/**
 * Makes a URL that may hold a secret a secret param: it has a user, a query or a fragment. Agents
 * refuse a URL with a password, but the params of the task are stored nevertheless.
 */
export function withSecretUrl(task: string, params: JsonObject): JsonObject {
  const name = Object.hasOwn(URL_PARAMS, task) ? URL_PARAMS[task] : undefined;
  if (name === undefined || !Object.hasOwn(params, name) || !mayHoldSecret(params[name])) return params;
  const given = Object.hasOwn(params, SECRET_PARAMS) ? params[SECRET_PARAMS] : [];
  // `reasonNotMaskable` refuses anything else.
  if (!Array.isArray(given) || given.includes(`/${name}`)) return params;
  return { ...params, [SECRET_PARAMS]: [...given, `/${name}`] };
}

const mayHoldSecret = (url: unknown): boolean => typeof url === 'string' && /^[^/]*:.*[@?#]/s.test(url);

export function hasSecrets(params: JsonObject): boolean {
  const pointers: unknown = Object.hasOwn(params, SECRET_PARAMS) ? params[SECRET_PARAMS] : undefined;
  return Array.isArray(pointers) && pointers.length > 0;
}

/**
 * Returns a copy without the secrets; the same params when no secret is named. Params that name
 * more than may be named, which only a legacy agent can return, are withheld whole.
 */
export function maskParams(params: JsonObject): JsonObject {
  if (!hasSecrets(params)) return params;
  const pointers = params[SECRET_PARAMS] as unknown[];
  if (pointers.length > MAX_SECRET_POINTERS) return {};
  const masked = structuredClone(params);
  for (const pointer of pointers) {
    const keys = keysOf(pointer);
    const parent = keys && parentOf(masked, keys);
    // An assignment would treat a key such as __proto__ specially.
    if (parent !== undefined)
      Object.defineProperty(parent, keys?.at(-1) ?? '', {
        value: SECRET_MASK,
        enumerable: true,
        configurable: true,
        writable: true,
      });
  }
  return masked;
}

/** Returns undefined when the text is not a pointer or points at the whole document. */
function keysOf(pointer: unknown): string[] | undefined {
  if (typeof pointer !== 'string' || pointer.length > MAX_POINTER_CHARS || !/^(\/([^~/]|~[01])*)+$/.test(pointer))
    return undefined;
  return pointer
    .slice(1)
    .split('/')
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/**
 * Returns the object or list that holds the last key; undefined when there is none. A masked parent
 * holds nothing.
 */
function parentOf(params: JsonObject, keys: readonly string[]): object | undefined {
  let parent: unknown = params;
  for (const [index, key] of keys.entries()) {
    if (typeof parent !== 'object' || parent === null || !Object.hasOwn(parent, key)) return undefined;
    if (Array.isArray(parent) && !/^(0|[1-9]\d*)$/.test(key)) return undefined;
    if (index === keys.length - 1) return parent;
    parent = (parent as JsonObject)[key];
  }
  return undefined;
}
