/** The table of all contracts, in the order of the OpenAPI document. */
import { annealerContracts } from './annealer.ts';
import { auditContracts } from './audit.ts';
import { bootContracts } from './boot.ts';
import { chefContracts } from './chef.ts';
import type { Contract } from './contract/contract.ts';
import { eventContracts } from './events.ts';
import { serverImageContracts } from './images.ts';
import { instanceContracts } from './instances.ts';
import { legacyAgentContracts } from './legacy-agents.ts';
import { packageContracts } from './packages.ts';
import { placementContracts } from './placement.ts';
import { processContracts } from './process.ts';
import { provisioningContracts } from './provisioning.ts';
import { pushEventContracts } from './push/events.ts';
import { pushJobContracts } from './push/jobs.ts';
import { pushNodeContracts } from './push/nodes.ts';
import { pushScheduleContracts } from './push/schedules.ts';
import { serverSetupContracts } from './server-setup.ts';
import { serverTaskContracts } from './server-tasks.ts';
import { serverContracts } from './servers.ts';
import { streamContracts } from './streams.ts';
import { taskContracts } from './tasks.ts';
import { ticketContracts } from './tickets.ts';
import { tokenContracts } from './tokens.ts';
import { vmContracts } from './vms.ts';
import { workflowContracts } from './workflows.ts';
import { zfsContracts } from './zfs.ts';

export const contractList: readonly Contract[] = [
  processContracts,
  serverContracts,
  bootContracts,
  legacyAgentContracts,
  serverTaskContracts,
  streamContracts,
  vmContracts,
  serverImageContracts,
  packageContracts,
  zfsContracts,
  placementContracts,
  taskContracts,
  workflowContracts,
  serverSetupContracts,
  provisioningContracts,
  annealerContracts,
  pushJobContracts,
  pushEventContracts,
  pushNodeContracts,
  pushScheduleContracts,
  chefContracts,
  ticketContracts,
  instanceContracts,
  tokenContracts,
  auditContracts,
  eventContracts,
].flatMap((table) => Object.values<Contract>(table));
