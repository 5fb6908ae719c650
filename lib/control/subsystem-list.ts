/**
 * The subsystems of an instance, in the order in which their migrations are applied and in which
 * they start. A new one is a folder and a line here.
 */
import type { Migration } from '../platform/postgres/migrations.ts';
import { accessSubsystem } from './access/subsystem.ts';
import { annealerSubsystem } from './annealer/subsystem.ts';
import { auditSubsystem } from './audit/subsystem.ts';
import { busSubsystem } from './bus/subsystem.ts';
import { chefSubsystem } from './chef/subsystem.ts';
import { databaseSubsystem } from './database/subsystem.ts';
import { descriptorSubsystem } from './descriptors/subsystem.ts';
import type { DocumentSubsystem } from './documents/document-subsystem.ts';
import * as nouns from './documents/nouns.ts';
import { dutySubsystem } from './duty/subsystem.ts';
import { eventsSubsystem } from './events/subsystem.ts';
import { housekeepingSubsystem } from './housekeeping/subsystem.ts';
import { httpSubsystem } from './http/subsystem.ts';
import { serverImagesSubsystem } from './images/subsystem.ts';
import { legacySubsystem } from './legacy/subsystem.ts';
import { linkSubsystem } from './link/subsystem.ts';
import { organizationsSubsystem } from './organizations/subsystem.ts';
import { packagesSubsystem } from './packages/subsystem.ts';
import { placementSubsystem } from './placement/subsystem.ts';
import { promotionSubsystem } from './promotion/subsystem.ts';
import { scheduleSubsystem } from './push/schedules/subsystem.ts';
import { pushSubsystem } from './push/subsystem.ts';
import { rosterSubsystem } from './roster/subsystem.ts';
import { serversSubsystem } from './servers/subsystem.ts';
import { streamsSubsystem } from './streams/subsystem.ts';
import { tasksSubsystem } from './tasks/subsystem.ts';
import { urSubsystem } from './ur/subsystem.ts';
import { vmsSubsystem } from './vms/subsystem.ts';
import { waitlistSubsystem } from './waitlist/subsystem.ts';
import { workflowSubsystem } from './workflows/subsystem.ts';
import { zfsSubsystem } from './zfs/subsystem.ts';

/** Subsystems that need nothing but a core (`core.ts`), so the simulation runs them, too. */
export const coreSubsystems = [
  rosterSubsystem,
  linkSubsystem,
  legacySubsystem,
  serversSubsystem,
  tasksSubsystem,
  urSubsystem,
  vmsSubsystem,
  serverImagesSubsystem,
  packagesSubsystem,
  zfsSubsystem,
  streamsSubsystem,
  dutySubsystem,
  pushSubsystem,
  workflowSubsystem,
  annealerSubsystem,
  waitlistSubsystem,
  placementSubsystem,
  eventsSubsystem,
];

export const subsystems = [
  busSubsystem,
  databaseSubsystem,
  accessSubsystem,
  auditSubsystem,
  promotionSubsystem,
  descriptorSubsystem,
  httpSubsystem,
  ...coreSubsystems,
  scheduleSubsystem,
  ...Object.values<DocumentSubsystem>({ ...nouns }),
  organizationsSubsystem,
  chefSubsystem,
  housekeepingSubsystem,
];

export const migrations: readonly Migration[] = subsystems.flatMap(({ migrations = [] }) => migrations);
