/** Events of push jobs as Chef sends them. Pure. */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { FeedEvent } from '../../push/followers/feed-store.ts';
import type { OrganizationJob } from '../push-jobs/organization-jobs-store.ts';

interface ChefEvent {
  id: string;
  name: string;
  data: Readonly<Record<string, unknown>>;
}

/** The number in the id of an event of a job's feed; undefined for any other text. */
export function parseJobEventId(id: string | undefined): number | undefined {
  const [, digits] = /^job-(\d{1,9})$/.exec(id ?? '') ?? [];
  return digits === undefined ? undefined : Number(digits);
}

export function toChefEvent({ number, name, node, status, atUs }: FeedEvent): ChefEvent {
  return {
    id: `job-${number}`,
    name,
    data: {
      timestamp: feedTime(Number(atUs)),
      ...definedFields({ node, status }),
    },
  };
}

/** `withContents`: whether the caller may see the command and its options. */
export function toStartEvent(job: OrganizationJob, withContents: boolean, id = 'job-1'): ChefEvent {
  const { user, dir, env, capture = false } = job.options;
  const contents = {
    command: job.command,
    ...definedFields({ job_user: user, dir, env }),
    ...(job.hasFile ? { file_specified: true } : {}),
    capture,
  };
  const data = {
    timestamp: feedTime(Number(job.createdAtUs)),
    ...(withContents ? contents : { withheld: true }),
    run_timeout: job.runTimeoutMs / 1000,
    quorum: job.quorum,
    node_count: job.nodeCount,
    user: job.requestor ?? '',
  };
  return { id, name: 'start', data };
}

/** A time as Chef writes it. */
export function feedTime(us: number): string {
  const ms = Math.floor(us / 1000);
  return `${new Date(ms).toISOString().replace('T', ' ').slice(0, -1)}${String(us - ms * 1000).padStart(3, '0')}Z`;
}
