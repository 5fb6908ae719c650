/** A push job and its nodes in the form of Chef. Pure. */

import { definedFields } from '../../../platform/defined-fields.ts';
import type { ChefJob, ChefListedJob, ChefNodeState } from '../../../protocol/api/chef.ts';
import type { NodeStatus } from '../../../protocol/api/push/job-schemas.ts';
import type { NodeStateRow } from '../../push/push-store.ts';
import type { CountedJob, OrganizationJob } from './organization-jobs-store.ts';

/** 32 hexadecimal digits, as Chef writes an id. */
export const toChefId = (uuid: string): string => uuid.replaceAll('-', '');

/** The uuid of a job, written with dashes or without them; undefined for any other text. */
export function parseChefId(text: string): string | undefined {
  const digits = text.toLowerCase();
  const [, ...parts] =
    /^([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})$/.exec(digits) ?? [];
  return parts.length === 0 ? undefined : parts.join('-');
}

/** `withContents`: whether the caller may see the command and its options. */
export function toListedChefJob(job: OrganizationJob, withContents: boolean): ChefListedJob {
  return {
    id: toChefId(job.id),
    ...(withContents ? contentsOf(job) : { withheld: true }),
    status: job.status,
    run_timeout: job.runTimeoutMs / 1000,
    created_at: job.createdAt.toUTCString(),
    updated_at: job.stateSince.toUTCString(),
  };
}

export function toCountedChefJob(job: CountedJob, withContents: boolean): ChefListedJob {
  const listed = toListedChefJob(job, withContents);
  return job.counts === null ? listed : { ...listed, counts: job.counts };
}

interface ChefJobDetails {
  nodes: readonly { state: NodeStatus; names: string[] }[];
  withContents: boolean;
  /** The contents of its file, if the caller wants them. */
  file?: Buffer | undefined;
}

export function toChefJob(job: OrganizationJob, { nodes, withContents, file }: ChefJobDetails): ChefJob {
  const { file_specified: hasFile, ...listed } = toListedChefJob(job, withContents);
  return {
    ...listed,
    ...(hasFile !== true ? {} : file === undefined ? { file_specified: true } : { file: fileTextOf(file) }),
    nodes: Object.fromEntries(nodes.map(({ state, names }) => [state, names])),
  };
}

function contentsOf({ command, options, hasFile }: OrganizationJob) {
  const { user, dir, env, capture } = options;
  return {
    command,
    ...definedFields({ user, dir }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(hasFile ? { file_specified: true } : {}),
    ...(capture === true ? { capture_output: true } : {}),
  };
}

/** Text as it is, anything else in base64. */
function fileTextOf(file: Buffer): string {
  const text = file.toString('utf8');
  return Buffer.from(text).equals(file) ? `raw:${text}` : `base64:${file.toString('base64')}`;
}

/** A node that runs a job is available, as in Chef. */
export function toChefNodeState(name: string, row: Pick<NodeStateRow, 'state' | 'since'> | undefined): ChefNodeState {
  const { state = 'down', since = null } = row ?? {};
  return {
    node_name: name,
    status: state === 'down' ? 'offline' : 'online',
    availability: state === 'idle' || state === 'in-job' ? 'available' : 'unavailable',
    ...(since === null ? {} : { updated_at: since.toUTCString() }),
  };
}
