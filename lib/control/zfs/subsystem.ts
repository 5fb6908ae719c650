/** What ZFS contributes to an instance: only routes, because agents carry it out. */
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { type ZfsRouteDeps, zfsRoutes } from './routes/zfs-routes.ts';

export const zfsSubsystem: SubsystemDefinition<ZfsRouteDeps> = {
  open(parts): Subsystem {
    return { name: 'ZFS of servers', routes: zfsRoutes(parts) };
  },
};
