/**
 * The push job that a user or client of an organization asks for. Pure, given what its nodes are.
 */

import type { Organization } from '../../../protocol/api/documents/organizations.ts';
import { DEFAULT_ABORT_TIMEOUT_MS, DEFAULT_VOTING_TIMEOUT_MS } from '../../../protocol/api/push/jobs.ts';
import type { NodeLookup } from '../../organizations/organizations.ts';
import { mayExecute, type Requestor } from '../../organizations/requestor.ts';
import type { NewPushJob } from '../../push/push-store.ts';
import { InvalidJobError } from '../pushy-errors.ts';
import type { ChefJobBody } from './job-body.ts';

interface ChefJobParts {
  id: string;
  body: ChefJobBody;
  organization: Organization;
  requestor: Requestor;
  nodes: ReadonlyMap<string, NodeLookup>;
}

const NAMED = 10;

/** @throws InvalidJobError */
export function buildPushJob({ id, body, organization, requestor, nodes }: ChefJobParts): NewPushJob {
  const { command, user, dir, env, capture, file, quorum, runTimeoutMs } = body;
  if (!isAllowed(command, organization.allowed_commands ?? undefined))
    throw new InvalidJobError(
      'invalid command supplied',
      'command',
      `organization '${organization.name}' does not allow it`,
    );
  // PATH, BASH_ENV or LD_PRELOAD would turn an allowed command into another program.
  if (organization.allowed_commands != null && env !== undefined && Object.keys(env).length > 0)
    throw new InvalidJobError(
      'invalid environment value',
      'env',
      `organization '${organization.name}' has a list of allowed commands, so their environment cannot be set`,
    );
  // A command may name files relative to its directory, as `sh update.sh` does.
  if (organization.allowed_commands != null && dir !== undefined)
    throw new InvalidJobError(
      'invalid directory supplied',
      'dir',
      `organization '${organization.name}' has a list of allowed commands, so their directory cannot be set`,
    );
  return {
    id,
    organization: organization.uuid,
    requestor: requestor.name,
    command,
    options: { user, dir, env, capture },
    maskedOptions: undefined,
    file,
    nodes: checkNodes(body.nodes, nodes, { organization, requestor }),
    quorum,
    concurrency: undefined,
    maxFailures: undefined,
    votingTimeoutMs: DEFAULT_VOTING_TIMEOUT_MS,
    runTimeoutMs,
    abortTimeoutMs: DEFAULT_ABORT_TIMEOUT_MS,
    actor: requestor.actor.name,
  };
}

/** Each entry is a whole command, or the beginning of commands and `*`. */
export function isAllowed(command: string, allowed: readonly string[] | undefined): boolean {
  return (
    allowed === undefined ||
    allowed.some((entry) => (entry.endsWith('*') ? command.startsWith(entry.slice(0, -1)) : command === entry))
  );
}

function checkNodes(
  names: readonly string[],
  nodes: ReadonlyMap<string, NodeLookup>,
  { organization, requestor }: Pick<ChefJobParts, 'organization' | 'requestor'>,
): NewPushJob['nodes'] {
  const found = names.map((name) => [name, nodes.get(name) ?? 'unknown'] as const);
  refuse(found, 'unknown', `organization '${organization.name}' has no nodes of these names`);
  refuse(found, 'ambiguous', `several servers of organization '${organization.name}' have each of these hostnames`);
  return found.flatMap(([name, node]) =>
    typeof node === 'string' ? [] : [{ serverUuid: node.serverUuid, name, isDenied: !mayExecute(requestor, node) }],
  );
}

function refuse(found: readonly (readonly [name: string, node: NodeLookup])[], what: NodeLookup, reason: string): void {
  const names = found.filter(([, node]) => node === what).map(([name]) => name.slice(0, 100));
  if (names.length === 0) return;
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : '';
  throw new InvalidJobError('invalid nodes supplied', 'nodes', `${reason}: ${names.slice(0, NAMED).join(', ')}${more}`);
}
