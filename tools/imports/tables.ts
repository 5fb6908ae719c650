/**
 * Which part of lib may name a table that another part owns, in a statement or a migration. The
 * part whose migration creates a table owns it. Others call its functions, unless a line here says
 * why not. The check fails for a line that nothing needs.
 */

export interface TableUse {
  part: string;
  table: string;
  reason: string;
}

/** Reads, locks and triggers. */
export const foreignReads: readonly TableUse[] = [
  {
    part: 'control/tasks',
    table: 'cnapi_roster_authority',
    reason:
      'claims, inventories and sweeps lock the row that names the session, in the transaction that changes tasks (law 5)',
  },
  {
    part: 'control/tasks',
    table: 'cnapi_waitlist_tickets',
    reason: 'a task under a ticket is created in the statement that locks the ticket as active',
  },
  {
    part: 'control/duty',
    table: 'cnapi_instances',
    reason: 'duties are claimed for a live run, and taken over from a dead one',
  },
  {
    part: 'control/legacy',
    table: 'cnapi_instances',
    reason:
      'a heartbeat takes a row only from a run that is dead, and tasks are claimed to be posted only by a live one',
  },
  {
    part: 'control/legacy',
    table: 'cnapi_servers',
    reason: 'heartbeats and addresses count only for servers that exist',
  },
  {
    part: 'control/ur',
    table: 'cnapi_servers',
    reason: 'messages of Ur count for servers that exist, and only those that are not set up are running by them',
  },
  { part: 'control/legacy', table: 'cnapi_server_sysinfo', reason: 'addresses that a sysinfo names are kept longest' },
  {
    part: 'control/servers',
    table: 'cnapi_roster_authority',
    reason: 'a server is read together with its status, in one statement',
  },
  {
    part: 'control/organizations',
    table: 'cnapi_servers',
    reason: 'the name of a node is the hostname of its server, and a binding ends with its server',
  },
  {
    part: 'control/vms',
    table: 'cnapi_tasks',
    reason: 'triggers claim the uuid of a VM with the task that creates it, and change the VM with the end of a task',
  },
  {
    part: 'control/placement',
    table: 'cnapi_servers',
    reason: 'a place for a VM is read with all that is on it, in one statement; the next six lines, too',
  },
  { part: 'control/placement', table: 'cnapi_roster_authority', reason: 'its status' },
  { part: 'control/placement', table: 'cnapi_server_sysinfo', reason: 'its cores, platform and NIC tags' },
  { part: 'control/placement', table: 'cnapi_server_reports', reason: 'its memory and disk' },
  {
    part: 'control/placement',
    table: 'cnapi_vms',
    reason: 'its VMs; and a trigger ends the claim of a VM that is gone',
  },
  { part: 'control/placement', table: 'cnapi_waitlist_tickets', reason: 'its open provisioning tickets' },
  { part: 'control/placement', table: 'cnapi_workflow_jobs', reason: 'whether a job reboots or resets it' },
  { part: 'control/push', table: 'cnapi_servers', reason: 'the rehab of a server ends when it was removed' },
  { part: 'control/chef', table: 'cnapi_push_jobs', reason: 'jobs of organizations are read in the form of Chef' },
  { part: 'control/chef', table: 'cnapi_push_nodes', reason: 'jobs of organizations are read in the form of Chef' },
  {
    part: 'control/doctor',
    table: 'cnapi_migrations',
    reason: 'the doctor compares what was applied with this version, and changes nothing',
  },
  { part: 'control/doctor', table: 'cnapi_instances', reason: 'the doctor counts instances, and changes nothing' },
  { part: 'control/doctor', table: 'cnapi_tokens', reason: 'the doctor looks for an admin token, and changes nothing' },
];

export const foreignWrites: readonly TableUse[] = [
  {
    part: 'control/legacy',
    table: 'cnapi_roster_authority',
    reason: 'heartbeats and silences of legacy agents set the status in one transaction with their record',
  },
  {
    part: 'control/ur',
    table: 'cnapi_roster_authority',
    reason: 'messages and silences of Ur set the status in one transaction with their record',
  },
  {
    part: 'control/legacy',
    table: 'cnapi_tasks',
    reason:
      'posted tasks move to a new run of their instance, or end with a dead one, guarded by posted_by on their row',
  },
];
