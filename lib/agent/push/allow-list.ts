/**
 * Which commands of push jobs this agent runs: the file of --push-commands, read again when it
 * changes. Asked by refusal.ts. Without the option every command is allowed.
 */
import { createContext, Script } from 'node:vm';
import { z } from 'zod';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { PushPrepareFrame } from '../../protocol/link/frames.ts';
import { ReloadedFile } from '../reloaded-file.ts';

export interface AllowedCommands {
  /** The rule that the command breaks, as a sentence; undefined if it is allowed. */
  reasonNotAllowed(prepare: Pick<PushPrepareFrame, 'command' | 'env'>): string | undefined;
}

interface AllowList {
  exact: ReadonlySet<string>;
  patterns: readonly RegExp[];
  /** Variables that a job may set. */
  env: ReadonlySet<string>;
}

const MAX_FILE_BYTES = 256 * 1024;
const MAX_ENTRIES = 1_000;
const MAX_PATTERN_CHARS = 1_000;
/** A longer command is compared with exact commands only. */
const MAX_MATCHED_CHARS = 4_096;
/** Limits the time for all patterns together, because the agent does nothing else meanwhile. */
const MATCH_WITHIN_MS = 100;

const schema = z.strictObject({
  allow: z
    .array(
      z.union([z.string().min(1), z.strictObject({ pattern: z.string().min(1).max(MAX_PATTERN_CHARS) })], {
        error: 'is neither a command nor {"pattern": "…"}',
      }),
    )
    .max(MAX_ENTRIES),
  env: z.array(z.string().min(1)).max(MAX_ENTRIES).default([]),
});

/** @throws Error naming the option and the file when it cannot be used */
export function openAllowedCommands(path: string, log: Logger): AllowedCommands {
  const complain = (reason: string, isKept: boolean) =>
    log.warn(
      { reason },
      isKept
        ? 'push jobs: the new list of allowed commands is invalid; keeping the previous one'
        : 'push jobs: the list of allowed commands cannot be used; no command is allowed',
    );
  const file = new ReloadedFile({
    path,
    maxBytes: MAX_FILE_BYTES,
    parse: parseAllowList,
    complain,
    protection: 'trusted',
  });
  try {
    file.load();
  } catch (cause) {
    throw new Error(`--push-commands ${messageOf(cause)}`, { cause });
  }
  return {
    reasonNotAllowed(prepare) {
      const list = file.read();
      if (list === undefined) return `no command is allowed: the file of --push-commands, ${file.failureReason}`;
      const broken = ruleBrokenBy(prepare, list);
      return broken === undefined ? undefined : `${broken} of ${path} (--push-commands)`;
    },
  };
}

/** @throws Error saying which entry is wrong */
export function parseAllowList(text: string): AllowList {
  const parsed = schema.safeParse(JSON.parse(text));
  if (!parsed.success) {
    const { path = [], message = '' } = parsed.error.issues[0] ?? {};
    throw new Error(`${path.length === 0 ? 'it' : path.join('.')}: ${message}`);
  }
  const { allow, env } = parsed.data;
  return {
    exact: new Set(allow.filter((entry) => typeof entry === 'string')),
    patterns: allow.flatMap((entry) => (typeof entry === 'string' ? [] : anchored(entry.pattern))),
    env: new Set(env),
  };
}

/** A pattern that is valid alone cannot leave the group that anchors it. */
function anchored(pattern: string): RegExp {
  new RegExp(pattern, 'u');
  return new RegExp(`^(?:${pattern})$`, 'u');
}

export function ruleBrokenBy(
  { command, env = {} }: Pick<PushPrepareFrame, 'command' | 'env'>,
  list: AllowList,
): string | undefined {
  const variable = Object.keys(env).find((name) => !list.env.has(name));
  if (variable !== undefined) return `the variable ${JSON.stringify(variable.slice(0, 100))} is not in "env"`;
  if (list.exact.has(command)) return undefined;
  if (list.patterns.length > 0 && command.length > MAX_MATCHED_CHARS)
    return `the command has more than ${MAX_MATCHED_CHARS} characters, so it matches no pattern in "allow"`;
  const matched = matchesOne(command, list.patterns);
  if (matched === 'too-slow')
    return `comparing the command took longer than ${MATCH_WITHIN_MS} ms: make the patterns simpler in "allow"`;
  return matched ? undefined : 'the command is not in "allow"';
}

/** A context of its own, because only a script that runs in one can be stopped after a time. */
const bounded = createContext({ match: undefined as (() => boolean) | undefined });
const match = new Script('match()');

function matchesOne(command: string, patterns: readonly RegExp[]): boolean | 'too-slow' {
  if (patterns.length === 0) return false;
  bounded.match = () => patterns.some((pattern) => pattern.test(command));
  try {
    return match.runInContext(bounded, { timeout: MATCH_WITHIN_MS }) === true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return 'too-slow';
    throw error;
  } finally {
    bounded.match = undefined;
  }
}
