/** Reads the server of a request's path, for contracts that require it. */
import type { RequireServer } from '../../http/route.ts';
import { ServerNotRunningError } from '../server-errors.ts';
import { CORE_PARTS } from '../server-store.ts';
import { ServerNotFoundError, type Servers } from '../servers.ts';

export function createServerPrecondition(servers: Pick<Servers, 'get'>): RequireServer {
  return async (serverUuid, mustRun) => {
    const found = await servers.get(serverUuid, CORE_PARTS);
    if (found === undefined) throw new ServerNotFoundError(serverUuid);
    const { isRunning, server } = found;
    if (mustRun && !isRunning) throw new ServerNotRunningError(serverUuid, server.status);
    return { status: server.status, isRunning };
  };
}
