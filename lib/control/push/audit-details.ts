/**
 * What the audit keeps about push jobs, because its records outlive them: without files and
 * secrets, and at most about 6 KiB. The names are those of the requests and of GET /push-jobs/:id.
 * Beside it a record has the uuids of all servers, by which it is found.
 */
import { NODE_COUNTS } from './job-page-store.ts';

const COMMAND_CHARS = 2_000;
const TEXT_CHARS = 200;
const VARIABLES = { limit: 20, chars: 40 };
const CONDITIONS = 5;
/** Limits the names of members of a job; a job has fewer. */
const FIELDS = { limit: 50, chars: 40 };
/** Limits the names of nodes together. */
const NAMES_CHARS = 1_000;
const MAX_NAMES = 100;

interface Options {
  user?: string | undefined;
  dir?: string | undefined;
  env?: Readonly<Record<string, string>> | undefined;
  capture?: boolean | undefined;
}

/** How a request says which servers it is about, if it does not name them. */
export interface TargetSelection {
  where?: readonly string[] | undefined;
  group?: string | undefined;
  from_job?: string | undefined;
  from_status?: string | undefined;
}

interface WantedJob {
  organization: string | undefined;
  requestor?: string | undefined;
  command: string;
  options: Options;
  maskedOptions: Options | undefined;
  file: Buffer | undefined;
  nodes: readonly { name: string }[];
  selection?: TargetSelection | undefined;
  schedule?: string | undefined;
}

/** Details of a new job, as JSON. */
export function newJobDetails({ options, maskedOptions, ...job }: WantedJob): string {
  const { user, dir, env, capture } = maskedOptions ?? options;
  return JSON.stringify({
    organization: job.organization,
    requestor: job.requestor,
    command: cut(job.command, COMMAND_CHARS),
    user: user && cut(user),
    dir: dir && cut(dir),
    ...(env && someOfEnv(env)),
    file_specified: job.file && true,
    capture_output: capture,
    push_schedule: job.schedule,
    ...(job.selection && selectionOf(job.selection)),
    ...namesOf(job.nodes),
  });
}

/** Details of nodes that are added to a job, as JSON. */
export const addedNodesDetails = (nodes: WantedJob['nodes']): string => JSON.stringify(namesOf(nodes));

/** Details of an abort of some nodes, as JSON. `nodes`: the uuids of their servers. */
export const nodeAbortDetails = (how: 'soft' | 'hard', nodes: readonly string[]): string =>
  JSON.stringify({ how, ...namesOf(nodes.map((name) => ({ name }))) });

function namesOf(nodes: WantedJob['nodes']) {
  const names: string[] = [];
  let chars = 0;
  for (const { name } of nodes) {
    chars += cut(name).length;
    if (chars > NAMES_CHARS || names.length === MAX_NAMES) break;
    names.push(cut(name));
  }
  return { node_count: nodes.length, nodes: names };
}

const selectionOf = ({ where, group, from_job, from_status }: SelectionBody) => ({
  where: where?.slice(0, CONDITIONS).map((condition) => cut(condition)),
  where_count: where && countIfMore(where.length, CONDITIONS),
  group: group && cut(group),
  from_job,
  from_status,
});

/** Details of a new schedule, as JSON. */
export const newScheduleDetails = (job: PushJobMembers): string => JSON.stringify(bodyDetailsOf(job));

/** Details of a change of a schedule, as JSON. `job`: those members of its job that change. */
export const scheduleChangeDetails = ({ job, ...others }: { job?: PushJobMembers | undefined }): string =>
  JSON.stringify({ ...others, ...(job && { job_fields: fieldsOf(job), ...bodyDetailsOf(job) }) });

const fieldsOf = (job: PushJobMembers): string[] =>
  Object.keys(job)
    .slice(0, FIELDS.limit)
    .map((name) => cut(name, FIELDS.chars));

const bodyDetailsOf = (job: PushJobMembers) => ({
  command: typeof job.command === 'string' ? cut(job.command, COMMAND_CHARS) : undefined,
  user: job.user && cut(job.user),
  dir: job.dir && cut(job.dir),
  ...(job.env && someOfEnv(job.env)),
  file_specified: job.file === undefined ? undefined : job.file !== null,
  capture_output: job.capture_output,
  ...selectionOf(job),
  node_count: job.servers?.length,
});

/**
 * A body of POST /push-jobs, or the members of it that change: null removes one. It has been
 * checked, and has no secrets.
 */
type SelectionBody = { [Name in keyof TargetSelection]: TargetSelection[Name] | null };
type PushJobMembers = SelectionBody & {
  command?: unknown;
  user?: string | null;
  dir?: string | null;
  env?: Readonly<Record<string, unknown>> | null;
  file?: unknown;
  capture_output?: boolean | null;
  servers?: readonly string[] | null;
};

/** SQL: of the ended job `j`. */
export const END_DETAILS = `jsonb_strip_nulls(jsonb_build_object(
    'organization', j.organization, 'requestor', j.requestor, 'command', left(j.command, ${COMMAND_CHARS}),
    'status', j.outcome, 'reason', left(j.reason, ${TEXT_CHARS}), 'node_count', j.node_count, 'counts', ${NODE_COUNTS},
    'actor', j.actor, 'created_at', j.created_at, 'updated_at', j.state_since))`;

function someOfEnv(env: Readonly<Record<string, unknown>>) {
  const { limit, chars } = VARIABLES;
  const all = Object.entries(env);
  const some = all.slice(0, limit).map(([name, value]) => [cut(name, chars), cut(String(value), chars)]);
  return { env: Object.fromEntries(some) as Record<string, string>, env_count: countIfMore(all.length, limit) };
}

/** How many there are, if some are left out. */
const countIfMore = (count: number, kept: number): number | undefined => (count > kept ? count : undefined);

/** The database refuses half of a surrogate pair. */
const cut = (text: string, chars = TEXT_CHARS): string => text.slice(0, chars).toWellFormed();
