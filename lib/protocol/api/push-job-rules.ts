/**
 * How the members of a push job must fit together, whichever servers exist. Pure. A new job and
 * the job of a schedule obey the same rules.
 */
import type { ParamsOf } from './contract.ts';
import { MAX_PUSH_NODES, type pushJobContracts } from './push-jobs.ts';

/** How a job names its servers: in exactly one of these ways. */
export const TARGET_KINDS = ['servers', 'where', 'group', 'from_job'] as const;

type Members = Pick<
  ParamsOf<typeof pushJobContracts.CreatePushJob>,
  (typeof TARGET_KINDS)[number] | 'from_status' | 'quorum' | 'env' | 'secret_env'
>;

export interface Complaint {
  field: string;
  message: string;
}

/** Why no job can have these members together. */
export function complaintsOfMembers(members: Members): Complaint[] {
  const { servers, from_job, from_status, quorum, env = {}, secret_env = [] } = members;
  const [kind, ...others] = TARGET_KINDS.filter((name) => members[name] !== undefined);
  const secret = secret_env.find((name) => !Object.hasOwn(env, name));
  return [
    ...(kind === undefined
      ? complaint('servers', `value is missing: name the servers by ${TARGET_KINDS.join(', or by ')}`)
      : []),
    ...(kind !== undefined && others.length > 0
      ? complaint(kind, `value cannot be combined with ${others.join(' and ')}`)
      : []),
    ...(from_status !== undefined && from_job === undefined ? complaint('from_status', 'value needs from_job') : []),
    ...(typeof quorum === 'number' ? complaintsOfQuorum(quorum, servers?.length) : []),
    ...(secret === undefined
      ? []
      : complaint('secret_env', `env has no variable ${JSON.stringify(secret).slice(0, 100)}`)),
  ];
}

/** `servers`: how many the job has; undefined when this is not known yet. */
export function complaintsOfQuorum(quorum: number, servers: number | undefined): Complaint[] {
  if (quorum <= (servers ?? MAX_PUSH_NODES)) return [];
  if (servers === undefined)
    return complaint('quorum', `value is ${quorum}, and a job can have at most ${MAX_PUSH_NODES} servers`);
  return complaint(
    'quorum',
    `value is ${quorum}, and there ${servers === 1 ? 'is 1 server' : `are ${servers} servers`}`,
  );
}

const complaint = (field: string, message: string): Complaint[] => [{ field, message }];
