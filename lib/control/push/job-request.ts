/**
 * The job that a caller asks for: checks the body of POST /push-jobs against the servers there are.
 * Called by the routes, and by schedules each time they fire.
 */
import type { ParamsOf } from '../../protocol/api/contract.ts';
import {
  DEFAULT_ABORT_TIMEOUT_MS,
  DEFAULT_RUN_TIMEOUT_MS,
  DEFAULT_VOTING_TIMEOUT_MS,
  type pushJobContracts,
} from '../../protocol/api/push-jobs.ts';
import { InvalidPushJobError } from './push-errors.ts';
import { quorumOf } from './push-job.ts';
import type { NewNode, NewPushJob, PushOptions } from './push-store.ts';

export type JobRequest = ParamsOf<typeof pushJobContracts.CreatePushJob>;

/** What is known of servers. */
export interface KnownServers {
  /** Of those that exist. */
  hostnames(serverUuids: readonly string[]): Promise<ReadonlyMap<string, string>>;
}

const HIDDEN = '(secret)';

/** @throws InvalidPushJobError */
export async function newPushJobOf(
  request: JobRequest,
  { id, actor, servers }: { id: string; actor: string | undefined; servers: KnownServers },
): Promise<NewPushJob> {
  const { command, user, dir, env = {}, secret_env = [], file, capture_output: capture } = request;
  const nodes = await newNodesOf(request.servers, servers);
  checkSecrets(env, secret_env);
  const wanted = request.quorum ?? { percent: 100 };
  const quorum = quorumOf(wanted, request.servers.length);
  if (quorum > request.servers.length)
    throw new InvalidPushJobError('quorum', `value is ${quorum}, and there are ${request.servers.length} servers`);
  const options: PushOptions = { user, dir, env, capture };
  const masked = Object.fromEntries(secret_env.map((name) => [name, HIDDEN]));
  return {
    id,
    organization: undefined,
    command,
    options,
    maskedOptions: secret_env.length === 0 ? undefined : { ...options, env: { ...env, ...masked } },
    file,
    nodes,
    quorum: Math.max(1, quorum),
    quorumPercent: typeof wanted === 'object' ? wanted.percent : undefined,
    concurrency: request.concurrency,
    startRate: request.start_rate,
    maxFailures: request.max_failures,
    votingTimeoutMs: request.voting_timeout_ms ?? DEFAULT_VOTING_TIMEOUT_MS,
    runTimeoutMs: request.run_timeout_ms ?? DEFAULT_RUN_TIMEOUT_MS,
    nodeTimeoutMs: request.node_timeout_ms,
    abortTimeoutMs: DEFAULT_ABORT_TIMEOUT_MS,
    actor,
  };
}

/** @throws InvalidPushJobError for servers that do not exist */
export async function newNodesOf(uuids: readonly string[], servers: KnownServers): Promise<NewNode[]> {
  const names = await servers.hostnames(uuids);
  checkServers(uuids, names);
  return uuids.map((serverUuid) => ({ serverUuid, name: names.get(serverUuid) ?? '' }));
}

function checkServers(wanted: readonly string[], known: ReadonlyMap<string, string>): void {
  const unknown = wanted.filter((uuid) => !known.has(uuid));
  if (unknown.length === 0) return;
  const more = unknown.length > 10 ? ` and ${unknown.length - 10} more` : '';
  throw new InvalidPushJobError('servers', `there are no such servers: ${unknown.slice(0, 10).join(', ')}${more}`);
}

function checkSecrets(env: Readonly<Record<string, string>>, names: readonly string[]): void {
  const missing = names.find((name) => !Object.hasOwn(env, name));
  if (missing !== undefined)
    throw new InvalidPushJobError('secret_env', `env has no variable ${JSON.stringify(missing).slice(0, 100)}`);
}
