/** What VMs contribute to an instance. */
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Random } from '../../platform/random.ts';
import type { Roster } from '../roster/roster.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { type VmRouteDeps, vmRoutes } from './routes/vm-routes.ts';
import { VmRegistry } from './vm-registry.ts';

interface VmParts extends Omit<VmRouteDeps, 'vms' | 'addresses' | 'host'> {
  roster: Pick<Roster, 'addresses'>;
  buckets: BucketStore;
  random: Random;
  config: { host: string };
}

export const vmsSubsystem: SubsystemDefinition<VmParts> = {
  migrations: readMigrations('vms', import.meta.dirname),
  open({ buckets, random, roster, config: { host }, ...parts }): Subsystem {
    const vms = new VmRegistry({ buckets, random, tasks: parts.tasks });
    return {
      name: 'vms',
      prepare: () => vms.prepare(),
      routes: vmRoutes({ ...parts, vms, host, addresses: () => roster.addresses() }),
      metrics: [
        {
          kind: 'labelled gauge',
          name: 'vms',
          help: 'VMs of the whole zone by state; every instance reports the same numbers',
          label: 'state',
          fetch: () => vms.counts(),
        },
      ],
    };
  },
};
