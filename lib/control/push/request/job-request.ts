/**
 * The job that a caller asks for: checks the body of POST /push-jobs against the servers there are.
 * Called by the routes, and by schedules each time they fire.
 */

import { checkAll, invalidParameter } from '../../../platform/errors.ts';
import type { ParamsOf } from '../../../protocol/api/contract/contract.ts';
import { findQuorumIssues } from '../../../protocol/api/push/job-rules.ts';
import {
  DEFAULT_ABORT_TIMEOUT_MS,
  DEFAULT_RUN_TIMEOUT_MS,
  DEFAULT_VOTING_TIMEOUT_MS,
  type pushJobContracts,
} from '../../../protocol/api/push/jobs.ts';
import { DEFAULT_TICKET_SECONDS, DEFAULT_TICKET_TIMEOUT_MS } from '../../../protocol/api/push/tickets.ts';
import { digestOf } from '../../../protocol/json/canonical-json.ts';
import { SECRET_MASK } from '../../../protocol/secret-params.ts';
import { countQuorum } from '../push-job.ts';
import type { NewPushJob, PushOptions, RequestKey } from '../push-store.ts';
import type { WantedTicket } from '../tickets/ticket-store.ts';
import { type KnownJobs, type KnownServers, resolveTargets } from './job-targets.ts';

type PushJobRequest = ParamsOf<typeof pushJobContracts.CreatePushJob>;

/**
 * The key of a request, with a hash of the request. The hash is stored, so it is computed without
 * the values of secret variables: it cannot be used to test guesses of them.
 */
export function createRequestKey(
  request: PushJobRequest,
  key: string | undefined,
  actor: string | undefined,
): RequestKey | undefined {
  if (key === undefined) return undefined;
  const { env, secret_env = [], file, ...others } = request;
  const asked = { ...others, secret_env, env: env && masked(env, secret_env), file: file?.toString('base64') };
  return { key, actor, hash: digestOf(asked) };
}

/** The key of a request that runs a schedule once. */
export const createRunRequestKey = (
  schedule: string,
  key: string | undefined,
  actor: string | undefined,
): RequestKey | undefined =>
  key === undefined ? undefined : { key, actor, hash: digestOf({ push_schedule: schedule }) };

const masked = (env: Readonly<Record<string, string>>, secrets: readonly string[]): Record<string, string> => ({
  ...env,
  ...Object.fromEntries(secrets.map((name) => [name, SECRET_MASK])),
});

/**
 * The request obeys the rules of its contract. @throws InvalidParametersError with all that is
 * wrong with its servers, its quorum and its ticket
 */
export async function resolvePushJob(
  request: PushJobRequest,
  { id, actor, ...known }: { id: string; actor: string | undefined; servers: KnownServers; jobs: KnownJobs },
): Promise<NewPushJob> {
  const { command, user, dir, env = {}, secret_env = [], file, capture_output: capture } = request;
  const wanted = request.quorum ?? { percent: 100 };
  const [{ nodes, quorum }, ticket] = await checkAll(
    async () => {
      const nodes = await resolveTargets(request, known);
      const quorum = countQuorum(wanted, nodes.length);
      for (const { field, message } of findQuorumIssues(quorum, nodes.length)) throw invalidParameter(field, message);
      return { nodes, quorum };
    },
    () => wantedTicketOf(request.ticket, known.servers),
  );
  const options: PushOptions = { user, dir, env, capture };
  return {
    id,
    organization: undefined,
    command,
    options,
    maskedOptions: secret_env.length === 0 ? undefined : { ...options, env: masked(env, secret_env) },
    file,
    nodes,
    selection: request,
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
    ticket,
  };
}

async function wantedTicketOf(
  wanted: PushJobRequest['ticket'],
  servers: KnownServers,
): Promise<WantedTicket | undefined> {
  if (wanted === undefined) return undefined;
  const { server_uuid: serverUuid = 'default', scope, id, expires_in, timeout_ms } = wanted;
  if (serverUuid !== 'default' && !(await servers.hostnames([serverUuid])).has(serverUuid))
    throw invalidParameter('ticket', `there is no server ${serverUuid}`);
  return {
    serverUuid,
    scope,
    id,
    expiresInSeconds: expires_in ?? DEFAULT_TICKET_SECONDS,
    timeoutMs: timeout_ms ?? DEFAULT_TICKET_TIMEOUT_MS,
  };
}
