/** Groups of servers: their documents, their routes and their rule. */

import { type ServerGroup, serverGroups } from '../../../protocol/api/documents/server-groups.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import type { Subsystem } from '../../subsystem.ts';
import type { DocumentSubsystem } from '../document-subsystem.ts';
import { Documents } from '../documents.ts';
import { documentRoutes } from '../routes/document-routes.ts';

/** @throws InvalidArgumentError unless it has either servers or conditions */
function checkServerGroup(group: Pick<ServerGroup, 'name' | 'servers' | 'where'>): void {
  if ((group.servers === undefined) === (group.where === undefined))
    throw new InvalidArgumentError(`server group ${group.name} has either servers or where`);
}

export const serverGroupsSubsystem: DocumentSubsystem = {
  open({ buckets, random }): Subsystem {
    const documents = new Documents(serverGroups, { buckets, random, check: checkServerGroup });
    return { name: 'server groups', prepare: () => documents.prepare(), routes: documentRoutes(documents) };
  },
};
