/**
 * Finds the servers on which a version of the agent could not be installed, for
 * `cnapi agents upgrade`.
 */

import type { CnapiClient } from '../../client/client.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import { mayBeOfVersion } from './upgrade-plan.ts';

/** Servers about whose tasks this program asks at a time. */
const ASKED = 20;

/**
 * The servers on which this version could not be installed: a run that halted at them has not begun
 * the others. Asks for the tasks of each server, because those of a busy zone are too many to look
 * through.
 */
export async function failedServers(
  client: Pick<CnapiClient, 'tasks'>,
  servers: readonly NamedServer[],
  version: string,
): Promise<Set<string>> {
  const failed = new Set<string>();
  const places = new Semaphore(ASKED);
  const look = async ({ uuid }: NamedServer) => {
    let after: string | undefined;
    do {
      const name = 'agent_install' satisfies TaskName;
      const filter = { server_uuid: uuid, name, status: 'failure', limit: 1000, after } as const;
      const { tasks, next } = await client.tasks(filter);
      if (tasks.some(({ summary }) => mayBeOfVersion(summary, version))) return void failed.add(uuid);
      after = next;
    } while (after !== undefined);
  };
  await Promise.all(servers.map((server) => places.run(() => look(server))));
  return failed;
}
