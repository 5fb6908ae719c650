/**
 * What the database tells the checks: each change of a coordination row, in the order of commits.
 */
import type { NodeStatus } from '../../lib/protocol/api/push/job-schemas.ts';
import type { NodeReason } from '../../lib/protocol/push.ts';
import type { TableOf } from '../support/subsystem-coverage.ts';
import { dutyStepsSql } from './sim-duty.ts';

export const CHANGES_CHANNEL = 'sim_changes';

export interface RosterRow {
  server_uuid: string;
  run: string | null;
  epoch: number;
  status: 'running' | 'unknown';
  reason: string;
  decided_by: string | null;
  incarnation: string | null;
  conn: number | null;
  inventory_epoch: number;
}

export interface TaskRow {
  id: string;
  server_uuid: string;
  name: string;
  /** The VM that it is about. */
  vm: string | null;
  state: 'queued' | 'claimed' | 'ended';
  outcome: 'complete' | 'failure' | null;
  attempt: number;
  epoch: number | null;
  idempotent: boolean;
  code: string | null;
  timeout_ms: number;
  is_cancelled: boolean;
  is_accepted: boolean;
  is_started: boolean;
  /** What the command runs, see sim-machine.ts. */
  script: string | null;
  /** The push job whose command it runs. */
  job: string | null;
  /** The beginning of its text. */
  result: string | null;
}

/** The VMs of a server, as they are stored. */
export interface ReportRow {
  server_uuid: string;
  vms: Record<string, { uuid: string; state: string }>;
}

export interface TicketRow {
  uuid: string;
  queue: number;
  place: number;
  status: 'queued' | 'active' | 'finished' | 'expired';
}

export interface InstanceRow {
  run: string;
  cnapi_uuid: string;
  state: 'live' | 'dead';
  end_reason: string | null;
}

export interface DutyRow {
  id: string;
  state: 'waiting' | 'held' | 'ended';
  run: string | null;
  generation: number;
  outcome: string | null;
}

export interface DutyStepRow {
  duty: string;
  step: number;
  run: string;
  generation: number;
}

export interface PushJobRow {
  id: string;
  state: 'waiting' | 'voting' | 'running' | 'aborting' | 'ended';
  outcome: string | null;
  ending: string | null;
  quorum: number;
  max_failures: number | null;
  voting_timeout_ms: number;
  run_timeout_ms: number;
  abort_requested: 'soft' | 'hard' | null;
  is_soft: boolean;
  concurrency: number | null;
  /** The job's ticket, once it has one. */
  ticket: string | null;
}

export interface PushNodeRow {
  job: string;
  server_uuid: string;
  state: NodeStatus;
  reason: NodeReason | null;
  incarnation: string | null;
  task: string | null;
  exit_code: number | null;
  abort_requested: 'soft' | 'hard' | null;
}

export interface PushBusyRow {
  server_uuid: string;
  job: string;
  rehab_since: string | null;
}

export interface WorkflowJobRow {
  id: string;
  server_uuid: string;
  chain: string[];
  onerror: string[];
  execution: 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';
  phase: 'chain' | 'onerror';
  step: number;
  tries: number;
  is_begun: boolean;
  ending: 'failed' | 'canceled' | null;
  task: string | null;
  /** When its present step began, or became due. */
  step_tick: number;
  is_cancelled: boolean;
}

export interface NoderoleRow {
  id: string;
  role: string;
  server_uuid: string;
  state: 'proposed' | 'blocked' | 'todo' | 'transition' | 'active' | 'error';
  blocked_by: string | null;
  noderole_run: string | null;
  /** The committed data. */
  data: string;
}

export interface NoderoleEdgeRow {
  parent: string;
  child: string;
}

export interface NoderoleRunRow {
  id: string;
  noderole: string;
  /** The role of its noderole. */
  role: string;
  server_uuid: string;
  task: string | null;
  outcome: string | null;
  is_ended: boolean;
  /** What its task was sent, without the data of others on the server; also after its end. */
  inputs: string | null;
}

interface Rows {
  cnapi_roster_authority: RosterRow;
  cnapi_tasks: TaskRow;
  cnapi_server_reports: ReportRow;
  cnapi_waitlist_tickets: TicketRow;
  cnapi_instances: InstanceRow;
  cnapi_duties: DutyRow;
  cnapi_sim_duty_steps: DutyStepRow;
  cnapi_push_jobs: PushJobRow;
  cnapi_push_nodes: PushNodeRow;
  cnapi_push_busy: PushBusyRow;
  cnapi_workflow_jobs: WorkflowJobRow;
  cnapi_noderoles: NoderoleRow;
  cnapi_noderole_edges: NoderoleEdgeRow;
  cnapi_noderole_runs: NoderoleRunRow;
}

/** A missing side is a row that did not exist before, or does not exist any more. */
export type Change = {
  [Table in keyof Rows]: { table: Table; before: Rows[Table] | null; after: Rows[Table] | null };
}[keyof Rows];

/**
 * The tables that `subsystem-coverage.ts` names, the reports with VMs, and one of the simulation
 * itself.
 */
type WatchedTable = TableOf<'simulated'> | 'cnapi_server_reports' | 'cnapi_sim_duty_steps';

const COLUMNS: Record<WatchedTable, string> = {
  cnapi_roster_authority: 'server_uuid, run, epoch, status, reason, decided_by, incarnation, conn, inventory_epoch',
  cnapi_server_reports: 'server_uuid, vms',
  cnapi_tasks: `id, server_uuid, name, params ->> 'uuid' as vm, state, outcome, attempt, epoch, idempotent, error ->> 'code' as code, timeout_ms,
    cancel_requested_at is not null as is_cancelled, accepted_at is not null as is_accepted,
    started_at is not null as is_started, params ->> 'script' as script,
    params ->> 'job' as job,
    left(result::text, 500) as result`,
  cnapi_waitlist_tickets: 'uuid, queue, place, status',
  cnapi_instances: 'run, cnapi_uuid, state, end_reason',
  cnapi_duties: 'id, state, run, generation',
  cnapi_sim_duty_steps: 'duty, step, run, generation',
  cnapi_push_jobs: `id, state, outcome, ending, quorum, max_failures, voting_timeout_ms, run_timeout_ms, abort_requested,
    is_soft, concurrency, ticket ->> 'uuid' as ticket`,
  cnapi_push_nodes: 'job, server_uuid, state, reason, incarnation, task, exit_code, abort_requested',
  cnapi_push_busy: 'server_uuid, job, rehab_since',
  cnapi_workflow_jobs: `id, server_uuid, chain, onerror, execution, phase, step, tries, is_begun, ending, task, step_tick,
    cancel_requested_at is not null as is_cancelled`,
  cnapi_noderoles: 'id, role, server_uuid, state, blocked_by, noderole_run, committed_data::text as data',
  cnapi_noderole_edges: 'parent, child',
  cnapi_noderole_runs: `id, noderole, (select n.role from cnapi_noderoles n where n.id = noderole) as role, server_uuid,
    task, outcome, ended_at is not null as is_ended, inputs::text as inputs`,
};

const tellFunction = (table: WatchedTable) => `
create function sim_tell_${table}() returns trigger language plpgsql as $$
declare
  was json;
  became json;
begin
  if tg_op <> 'INSERT' then
    select row_to_json(part) into was from (select ${COLUMNS[table]} from (select old.*) as whole) as part;
  end if;
  if tg_op <> 'DELETE' then
    select row_to_json(part) into became from (select ${COLUMNS[table]} from (select new.*) as whole) as part;
  end if;
  if was::text is distinct from became::text then
    perform pg_notify('${CHANGES_CHANNEL}', json_build_object('number', nextval('sim_change'), 'table', '${table}',
      'before', was, 'after', became)::text);
  end if;
  return null;
end $$;
create trigger sim_tell after insert or update or delete on ${table} for each row execute function sim_tell_${table}();`;

export const changesSql = `${dutyStepsSql} create sequence sim_change; ${(Object.keys(COLUMNS) as WatchedTable[]).map(tellFunction).join('')}`;

export function parseChange(payload: string): Change {
  const { table, before, after } = JSON.parse(payload) as Change;
  return { table, before, after } as Change;
}
