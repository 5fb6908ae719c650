/**
 * What the audit keeps about push jobs, because its records outlive them: without files and
 * secrets, and at most about 4 KiB. The names are those of GET /push-jobs/:id.
 */
import { NODE_COUNTS } from './job-page-store.ts';

const COMMAND_CHARS = 2_000;
const TEXT_CHARS = 200;
const VARIABLES = { most: 20, chars: 40 };
const NAMED_NODES = 5;

interface Options {
  user?: string | undefined;
  dir?: string | undefined;
  env?: Readonly<Record<string, string>> | undefined;
  capture?: boolean | undefined;
}

interface WantedJob {
  organization: string | undefined;
  requestor?: string | undefined;
  command: string;
  options: Options;
  maskedOptions: Options | undefined;
  file: Buffer | undefined;
  nodes: readonly { name: string }[];
}

/** Of a job that somebody asks for, as JSON. */
export function detailsOf({ options, maskedOptions, ...job }: WantedJob): string {
  const { user, dir, env, capture } = maskedOptions ?? options;
  return JSON.stringify({
    organization: job.organization,
    requestor: job.requestor,
    command: cut(job.command, COMMAND_CHARS),
    user: user && cut(user),
    dir: dir && cut(dir),
    env: env && shortened(env),
    file_specified: job.file && true,
    capture_output: capture,
    ...namesOf(job.nodes),
  });
}

/** Of nodes that are added to a job, as JSON. */
export const addedDetailsOf = (nodes: WantedJob['nodes']): string => JSON.stringify(namesOf(nodes));

const namesOf = (nodes: WantedJob['nodes']) => ({
  node_count: nodes.length,
  nodes: nodes.slice(0, NAMED_NODES).map(({ name }) => cut(name)),
});

/** Of a schedule of push jobs, as JSON. */
export const scheduleDetailsOf = ({ command }: { command?: unknown }): string =>
  JSON.stringify({ command: typeof command === 'string' ? cut(command, COMMAND_CHARS) : undefined });

/** SQL: of the ended job `j`. */
export const END_DETAILS = `jsonb_strip_nulls(jsonb_build_object(
    'organization', j.organization, 'requestor', j.requestor, 'command', left(j.command, ${COMMAND_CHARS}),
    'status', j.outcome, 'reason', left(j.reason, ${TEXT_CHARS}), 'node_count', j.node_count, 'counts', ${NODE_COUNTS},
    'actor', j.actor, 'created_at', j.created_at, 'updated_at', j.state_since))`;

function shortened(env: Readonly<Record<string, string>>): Record<string, string> {
  const { most, chars } = VARIABLES;
  const some = Object.entries(env).slice(0, most);
  return Object.fromEntries(some.map(([name, value]) => [cut(name, chars), cut(value, chars)]));
}

/** The database refuses half of a surrogate pair. */
const cut = (text: string, chars = TEXT_CHARS): string => text.slice(0, chars).toWellFormed();
