/**
 * The push jobs of organizations, and what nodes do for push jobs, as `lib/control/pushy` reads
 * them.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JobPage } from './job-page-store.ts';
import * as store from './organization-jobs-store.ts';
import type { NodeState } from './push-job.ts';
import { type NodeStateRow, readNodeStates } from './push-store.ts';

export class OrganizationJobs {
  readonly #database: Queryable;

  constructor({ database }: { database: Queryable }) {
    this.#database = database;
  }

  /** Undefined also for the job of another organization. */
  get(organization: string, id: string): Promise<store.OrganizationJob | undefined> {
    return store.readOrganizationJob(this.#database, organization, id);
  }

  /** The newest first. */
  list(organization: string, filter: store.OrganizationJobFilter): Promise<JobPage<store.CountedJob>> {
    return store.listOrganizationJobs(this.#database, organization, filter);
  }

  /** Those of all organizations, unless their abort has been requested. */
  unfinished(): Promise<{ id: string; organization: string }[]> {
    return store.readUnfinishedJobs(this.#database);
  }

  /** The names of a job's nodes by their state. */
  nodeNames(job: string): Promise<{ state: NodeState; names: string[] }[]> {
    return store.readNodeNames(this.#database, job);
  }

  /** The contents of the file that a job brings, until the job has ended. */
  file(job: string): Promise<Buffer | undefined> {
    return store.readPushFile(this.#database, job);
  }

  node(job: string, name: string): Promise<store.NamedNode | undefined> {
    return store.readNamedNode(this.#database, job, name);
  }

  /** What each of these servers does for push jobs. */
  async availability(servers: readonly string[]): Promise<Map<string, NodeStateRow>> {
    const rows = await readNodeStates(this.#database, servers);
    return new Map(rows.map((row) => [row.server_uuid, row]));
  }
}
