/**
 * How the members of a push job must fit together, whichever servers exist. Pure. A new job and
 * the job of a schedule obey the same rules.
 */
import { isJsonObject } from '../../json/bounded-json.ts';
import { MAX_PUSH_NODES } from '../../limits.ts';
import type { Issue } from '../contract/contract.ts';

/** How a job names its servers: in exactly one of these ways. */
export const TARGET_KINDS = ['servers', 'where', 'group', 'from_job'] as const;

const MAX_NAMES = 10;

/** Why no job can have these members together. Each may be wrong by itself, too. */
export function findMemberIssues(members: Readonly<Record<string, unknown>>): Issue[] {
  const { servers, from_job, from_status, quorum, env = {}, secret_env } = members;
  const [kind, ...others] = TARGET_KINDS.filter((name) => members[name] !== undefined);
  const count = Array.isArray(servers) ? servers.length : undefined;
  const secrets = isJsonObject(env) && Array.isArray(secret_env) ? secret_env.map(String) : [];
  return [
    ...(kind === undefined
      ? issue('servers', `value is missing: name the servers by ${TARGET_KINDS.join(', or by ')}`)
      : []),
    ...(kind !== undefined && others.length > 0
      ? issue(kind, `value cannot be combined with ${others.join(' and ')}`)
      : []),
    ...(from_status !== undefined && from_job === undefined ? issue('from_status', 'value needs from_job') : []),
    ...(typeof quorum === 'number' ? findQuorumIssues(quorum, count) : []),
    ...secrets
      .filter((name) => !Object.hasOwn(env as object, name))
      .slice(0, MAX_NAMES)
      .flatMap((name) => issue('secret_env', `env has no variable ${JSON.stringify(name).slice(0, 100)}`)),
  ];
}

/** `servers`: how many the job has; undefined when this is not known yet. */
export function findQuorumIssues(quorum: number, servers: number | undefined): Issue[] {
  if (quorum <= (servers ?? MAX_PUSH_NODES)) return [];
  if (servers === undefined)
    return issue('quorum', `value is ${quorum}, and a job can have at most ${MAX_PUSH_NODES} servers`);
  const count = servers === 1 ? 'is 1 server' : `are ${servers} servers`;
  return issue('quorum', `value is ${quorum}, and there ${count}${shareHint(quorum)}`);
}

/** 80 is perhaps meant as 80%. */
export const shareHint = (quorum: number): string => (quorum > 100 ? '' : `; for a share of them write "${quorum}%"`);

const issue = (field: string, message: string): Issue[] => [{ field, message }];
