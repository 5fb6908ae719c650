/**
 * I2, I3, I4 and I8 of docs/design.md as questions to the database, and that nothing is left of a
 * removed server: each returns the violations.
 * They read the rows and the log of their changes from `$1` on. Asked after each pair, and during
 * and after the random mix.
 *
 * Two transactions that did not see each other have each acted as if the other did not exist. If
 * the guard of one is the change of the other, that alone is the defect, whatever its effect this
 * time.
 */
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { complaintsSql } from '../control/waitlist/support/waitlist-database.ts';
import { CALLER_OF_ONE, SERVER_RAM } from './placement-statements.ts';

/**
 * Neither saw the other. Then their spans overlap, which is quick to test. `a` and `b` are entries
 * of logs.
 */
const unserialised = (a: string, b: string): string =>
  `${a}.xid <> ${b}.xid and ${a}.span && ${b}.span
   and not pg_visible_in_snapshot(${a}.xid, ${b}.seen) and not pg_visible_in_snapshot(${b}.xid, ${a}.seen)`;

/** The newest entry of this key that `by` could see, itself included. */
const lastSeen = (log: string, key: string, by: string): string => `(
  select e.* from ${log} e
    where e.key = ${key} and (e.xid = ${by}.xid and e.id < ${by}.id or pg_visible_in_snapshot(e.xid, ${by}.seen))
    order by e.id desc limit 1)`;

/** Changes of a roster row that end everything that was fenced by it. */
const CHANGES_HANDS = `((r.was).run is distinct from (r.now).run or (r.was).epoch is distinct from (r.now).epoch
  or (r.was).status is distinct from (r.now).status)`;

/**
 * I2. Epochs only rise; there is one status change to unknown per epoch, by any instance; those of
 * ownerless rows need a dead run.
 */
const roster: Record<string, string> = {
  'an epoch fell': `
    select (r.now).server_uuid::text || ' from ' || (r.was).epoch || ' to ' || (r.now).epoch from lab.roster_authority_log r
      where r.id > $1 and (r.now).epoch < (r.was).epoch`,
  'an epoch has two sessions': `
    select (r.now).server_uuid::text || ' epoch ' || (r.now).epoch from lab.roster_authority_log r
      where r.id > $1 and (r.now).run is not null and (r.was).epoch = (r.now).epoch
        and ((r.was).incarnation, (r.was).conn) is distinct from ((r.now).incarnation, (r.now).conn)`,
  'a status became running without a new epoch': `
    select (r.now).server_uuid::text || ' epoch ' || (r.now).epoch from lab.roster_authority_log r
      where r.id > $1 and (r.was).status = 'unknown' and (r.now).status = 'running' and (r.was).epoch = (r.now).epoch`,
  'a status change without a caller for this run and epoch': `
    select (r.now).server_uuid::text || ' epoch ' || (r.now).epoch || ' ' || (r.now).reason from lab.roster_authority_log r
      where r.id > $1 and (r.was).status = 'running' and (r.now).status = 'unknown'
        and (r.now).reason not in ('removed', 'legacy-silent')
        and not exists (select 1 from lab.intents i where i.kind = 'status-change' and i.subject = r.key
          and i.run = (r.was).run and i.number = (r.was).epoch)`,
  'a row counted as ownerless although its run is live': `
    select (r.now).server_uuid::text || ' run ' || (r.was).run from lab.roster_authority_log r
      join cnapi_instances n on n.run = (r.was).run and n.state = 'live'
      where r.id > $1 and (r.was).status = 'running' and (r.now).reason = 'instance-lost'
        and (r.now).status = 'unknown'`,
  'a new run was put on a row of another run or epoch': `
    select (r.now).server_uuid::text || ' epoch ' || (r.now).epoch from lab.roster_authority_log r
      where r.id > $1 and (r.was).run <> (r.now).run and (r.was).epoch = (r.now).epoch
        and not exists (select 1 from lab.intents i where i.kind = 'renewal' and i.subject = r.key
          and i.run = (r.was).run and i.number = (r.was).epoch)`,
  'an accept replaced another incarnation without a probe': `
    select (r.now).server_uuid::text || ' epoch ' || (r.now).epoch from lab.roster_authority_log r
      where r.id > $1 and (r.now).run is not null and (r.was).status = 'running' and (r.was).run is not null
        and (r.was).incarnation <> (r.now).incarnation
        and not exists (select 1 from lab.intents i where i.kind = 'probe' and i.subject = r.key and i.run = (r.was).incarnation)`,
  'an earlier connection took over from a later one': `
    select (r.now).server_uuid::text || ' conn ' || (r.was).conn || ' to ' || (r.now).conn from lab.roster_authority_log r
      where r.id > $1 and (r.was).incarnation = (r.now).incarnation and (r.now).conn < (r.was).conn`,
  'an inventory was recorded under an old epoch': `
    select (r.now).server_uuid::text from lab.roster_authority_log r
      where r.id > $1 and (r.now).inventory_epoch <> (r.was).inventory_epoch
        and (r.now).inventory_epoch <> (r.was).epoch`,
  'the history differs from the row': `
    select a.server_uuid::text from cnapi_roster_authority a
      cross join lateral (select h.status from cnapi_status_history h where h.server_uuid = a.server_uuid
        order by h.id desc limit 1) h
      where h.status <> a.status`,
};

/**
 * I2: a death is final and needs a beat that did not move; legacy heartbeats do not outrank a
 * session.
 */
const instances: Record<string, string> = {
  'a dead run became live again, raised its beat, or was drained': `
    select n.key::text from lab.instances_log n
      where n.id > $1 and (n.was).state = 'dead' and (n.now).run is not null
        and ((n.was).state, (n.was).beat, (n.was).ended_at, (n.was).draining_since, (n.was).end_reason)
          is distinct from ((n.now).state, (n.now).beat, (n.now).ended_at, (n.now).draining_since, (n.now).end_reason)`,
  'a run was declared lapsed although its beat had moved': `
    select n.key::text || ' beat ' || (n.was).beat from lab.instances_log n
      where n.id > $1 and (n.was).state = 'live' and (n.now).end_reason = 'lapsed'
        and not exists (select 1 from lab.intents i where i.kind = 'lapse' and i.subject = n.key and i.number = (n.was).beat)`,
  'two instances may drain, each because of the other': `
    select a.key::text || ', ' || b.key from lab.instances_log a
      join lab.instances_log b on ${unserialised('a', 'b')} and a.id < b.id and b.id > $1
        and (b.was).draining_since is null and (b.now).draining_since is not null
      where a.id > $1 and (a.was).draining_since is null and (a.now).draining_since is not null`,
  'legacy heartbeats outranked a session of a live run': `
    select r.key::text from lab.roster_authority_log r
      join cnapi_instances n on n.run = (r.was).run and n.state = 'live'
      where r.id > $1 and (r.was).status = 'running' and (r.now).reason = 'legacy-heartbeat'`,
  'a silence was recorded although the agent had posted a heartbeat': `
    select v.key::text from lab.roster_authority_log v
      left join lateral ${lastSeen('lab.heartbeats_log', 'v.key', 'v')} s on true
      where v.id > $1 and (v.was).status = 'running' and (v.now).reason = 'legacy-silent' and (v.now).status = 'unknown'
        and not exists (select 1 from lab.intents i where i.kind = 'silence' and i.subject = v.key
          and i.number = (v.was).epoch and i.record >= coalesce(s.record, 0))`,
  'a silence was recorded while the agent posted a heartbeat': `
    select v.key::text from lab.roster_authority_log v
      join lab.heartbeats_log s on s.key = v.key and ${unserialised('s', 'v')}
      where v.id > $1 and (v.was).status = 'running' and (v.now).reason = 'legacy-silent' and (v.now).status = 'unknown'`,
};

/** I3. One end, attempts without gaps, and nothing under an epoch that is over. */
const tasks: Record<string, string> = {
  'an ended task changed': `
    select t.key::text from lab.tasks_log t
      where t.id > $1 and (t.was).state = 'ended' and (t.now).id is not null
        and ((t.was).state, (t.was).outcome, (t.was).attempt, (t.was).ended_at, (t.was).result::text, (t.was).error::text)
          is distinct from
          ((t.now).state, (t.now).outcome, (t.now).attempt, (t.now).ended_at, (t.now).result::text, (t.now).error::text)`,
  'a task that had not ended was deleted': `
    select t.key::text from lab.tasks_log t where t.id > $1 and (t.now).id is null and (t.was).state <> 'ended'`,
  'an attempt was skipped, or counted twice': `
    select t.key::text || ' ' || (t.was).attempt || ' to ' || (t.now).attempt from lab.tasks_log t
      where t.id > $1 and (t.now).attempt - (t.was).attempt
        <> case when (t.was).state = 'queued' and (t.now).state = 'claimed' then 1 else 0 end`,
  'a task has no end event, or several, or something after it': `
    select t.id::text from cnapi_tasks t
      left join lateral (
        select count(*) filter (where e.name = 'end') as ends, max(e.seq) filter (where e.name = 'end') as end_seq,
          max(e.seq) as last_seq, count(*) filter (where e.name = 'output') as pieces
          from cnapi_task_events e where e.task_id = t.id) e on true
      where t.state = 'ended' and (e.ends <> 1 or e.end_seq <> e.last_seq) or t.state <> 'ended' and e.ends <> 0
        or e.last_seq > t.last_seq or e.pieces <> t.kept_events`,
  'a task was claimed or settled under an old epoch': `
    select t.key::text || ' epoch ' || (t.now).epoch || ' of ' || coalesce((r.now).epoch, 0) from lab.tasks_log t
      left join lateral ${lastSeen('lab.roster_authority_log', '(t.now).server_uuid', 't')} r on true
      where t.id > $1 and (t.now).epoch is distinct from (t.was).epoch
        and ((r.now).epoch is distinct from (t.now).epoch or (t.now).state = 'claimed' and (t.was).state = 'queued'
          and ((r.now).status <> 'running' or ((t.now).posted_by is not null) <> ((r.now).run is null)))`,
  'a task was claimed, settled or given up while the authority of its server changed': `
    select t.key::text || ' epoch ' || (t.now).epoch || ', ' || (r.now).epoch from lab.tasks_log t
      join lab.roster_authority_log r on r.key = (t.now).server_uuid and r.id > $1
      where t.id > $1 and ${CHANGES_HANDS} and ${unserialised('t', 'r')}
        and ((t.now).epoch is distinct from (t.was).epoch
          or (t.now).error->>'code' = 'TaskTimeout' and (t.was).state <> 'ended')`,
  'a task was claimed or put back into the queue although its cancel was requested': `
    select t.key::text from lab.tasks_log t
      where t.id > $1 and (t.was).cancel_requested_at is not null
        and ((t.was).state, (t.now).state) in (('queued', 'claimed'), ('claimed', 'queued'))`,
  'a request to cancel was withdrawn': `
    select t.key::text from lab.tasks_log t
      where t.id > $1 and (t.was).cancel_requested_at is not null and (t.now).id is not null
        and (t.now).cancel_requested_at is null`,
  'an acceptance or a start was forgotten within its attempt': `
    select t.key::text from lab.tasks_log t
      where t.id > $1 and (t.now).state <> 'queued' and (t.was).attempt = (t.now).attempt
        and ((t.was).accepted_at is not null and (t.was).accepted_at is distinct from (t.now).accepted_at
          or (t.was).started_at is not null and (t.was).started_at is distinct from (t.now).started_at)`,
  'an attempt was sent again that had been accepted': `
    select t.key::text from lab.tasks_log t
      where t.id > $1 and (t.was).accepted_at is not null and (t.now).attempt = (t.was).attempt and (t.now).state = 'claimed'
        and (t.now).sent_at <> (t.was).sent_at`,
  'a post was given up whose run may still get its answer': `
    select t.key::text from lab.tasks_log t
      join cnapi_instances n on n.run = (t.was).posted_by and n.state = 'live'
      where t.id > $1 and (t.was).state = 'claimed' and (t.now).state = 'ended'
        and (t.now).error->>'message' like 'the instance that had handed the task%'`,
  'a task was created under a ticket that was not active': `
    select t.key::text || ' ticket ' || (t.now).ticket_uuid from lab.tasks_log t
      left join lateral ${lastSeen('lab.waitlist_tickets_log', '(t.now).ticket_uuid', 't')} w on true
      where t.id > $1 and (t.was).id is null and (t.now).ticket_uuid is not null
        and (w.now).status is distinct from 'active'`,
  'a task was created under a ticket while the ticket ended': `
    select t.key::text || ' ticket ' || w.key from lab.tasks_log t
      join lab.waitlist_tickets_log w on w.key = (t.now).ticket_uuid and w.id > $1
      where t.id > $1 and (t.was).id is null and (w.now).status is distinct from (w.was).status and ${unserialised('t', 'w')}`,
};

/** I4. One active ticket, in order; ended tickets do not change. */
const tickets: Record<string, string> = {
  'the waitlist is inconsistent': complaintsSql,
  'a ticket became active before one that was ahead of it': `
    select o.key::text
      from (
        select k.key, k.active, max(k.left_at) over (
            partition by k.queue order by k.place rows between unbounded preceding and 1 preceding) as latest
          from (
            select w.key, min(coalesce((w.now).queue, (w.was).queue)) as queue, min(coalesce((w.now).place, (w.was).place)) as place,
                min(w.id) filter (where (w.now).status = 'active' and (w.was).status is distinct from 'active') as active,
                case when bool_or((w.now).status = 'queued') then coalesce(
                  min(w.id) filter (where (w.was).status = 'queued' and (w.now).status is distinct from 'queued'),
                  9223372036854775807) else 0 end as left_at
              from lab.waitlist_tickets_log w group by w.key
          ) as k
      ) as o
      where o.active > $1 and o.active < o.latest`,
  'an ended ticket changed, or an active one was queued again': `
    select w.key::text from lab.waitlist_tickets_log w
      where w.id > $1 and (w.now).uuid is not null
        and ((w.was).status in ('finished', 'expired')
          or (w.was).status = 'active' and (w.now).status = 'queued')`,
  'a ticket expired that had been renewed': `
    select w.key::text from lab.waitlist_tickets_log w
      where w.id > $1 and (w.now).status = 'expired' and (w.was).status <> 'expired' and (w.was).expires_at > (w.now).updated_at`,
};

/** I8. One holder at a time, each claim a new generation, one end. */
const duties: Record<string, string> = {
  'a duty was taken from a live run': `
    select d.key::text || ' run ' || (d.was).run from lab.duties_log d
      join cnapi_instances n on n.run = (d.was).run and n.state = 'live'
      where d.id > $1 and (d.was).state = 'held' and (d.now).state = 'held'
        and ((d.was).run, (d.was).generation) is distinct from ((d.now).run, (d.now).generation)`,
  'a generation of a duty was skipped, or counted twice': `
    select d.key::text || ' ' || (d.was).generation || ' to ' || (d.now).generation from lab.duties_log d
      where d.id > $1 and (d.was).id is not null and (d.now).id is not null
        and (d.now).generation - (d.was).generation
          <> case when (d.now).state = 'held' and (d.was).run is distinct from (d.now).run then 1 else 0 end`,
  'a duty was ended or handed over by another than its holder': `
    select d.key::text || ' generation ' || (d.was).generation from lab.duties_log d
      where d.id > $1 and (d.was).state = 'held' and (d.now).state <> 'held'
        and not exists (select 1 from lab.intents i where i.kind = 'settlement' and i.subject = d.key
          and i.run = (d.was).run and i.number = (d.was).generation)`,
  'an ended duty changed': `
    select d.key::text from lab.duties_log d
      where d.id > $1 and (d.was).state = 'ended' and (d.now).id is not null
        and (d.was)::text is distinct from (d.now)::text`,
  'a duty that had not ended was deleted': `
    select d.key::text from lab.duties_log d where d.id > $1 and (d.now).id is null and (d.was).state <> 'ended'`,
};

/** Invariants of the present rows of workflow jobs. */
const workflowJobs: Record<string, string> = {
  'a task of a workflow job is that of none of its steps': `
    select t.id::text from cnapi_tasks t
      where t.name = 'server_reboot' and not exists (
        select 1 from cnapi_workflow_jobs j where j.task = t.id or j.results @> jsonb_build_array(jsonb_build_object('task', t.id)))`,
  'a workflow job was cancelled before its step began': `
    select j.id::text from cnapi_workflow_jobs j
      where j.is_begun and j.step_since > j.cancel_requested_at`,
};

/** Invariants of the present rows of noderoles. */
const noderoles: Record<string, string> = {
  'a noderole is due, and a parent is not active': `
    select n.id::text from cnapi_noderoles n, cnapi_noderole_parents(n.id) p where n.state = 'todo' and p.parents <> 'active'`,
  'a noderole is blocked, and all of its parents are active': `
    select n.id::text from cnapi_noderoles n, cnapi_noderole_parents(n.id) p
      where n.state = 'blocked' and p.parents = 'active'`,
  'a noderole is active below one in error': `
    select n.id::text from cnapi_noderoles n, cnapi_noderole_parents(n.id) p
      where n.state = 'active' and p.parents = 'failed'`,
  'a blocked noderole names another one in error than its parents do': `
    select n.id::text from cnapi_noderoles n, cnapi_noderole_parents(n.id) p
      where n.state = 'blocked' and n.blocked_by is distinct from p.blocked_by`,
  'a noderole is not of a later cohort than a parent': `
    select c.id::text from cnapi_noderole_edges e join cnapi_noderoles p on p.id = e.parent
      join cnapi_noderoles c on c.id = e.child where c.cohort <= p.cohort`,
  'a noderole runs, and its run has ended': `
    select n.id::text from cnapi_noderoles n join cnapi_noderole_runs r on r.id = n.noderole_run where r.ended_at is not null`,
  'a task of the annealer is that of no run': `
    select t.id::text from cnapi_tasks t where t.summary like 'role %'
      and not exists (select 1 from cnapi_noderole_runs r where r.task = t.id)`,
};

/** Invariants of the present rows of push jobs. */
const pushJobs: Record<string, string> = {
  'a node takes part in a push job, and its server is not taken by it': `
    select n.job::text || ' ' || n.server_uuid from cnapi_push_nodes n
      where n.state in ('ready', 'running')
        and not exists (select 1 from cnapi_push_busy b where b.server_uuid = n.server_uuid and b.job = n.job)`,
  'a push job has ended, and one of its nodes has not': `
    select n.job::text || ' ' || n.server_uuid from cnapi_push_nodes n join cnapi_push_jobs j on j.id = n.job
      where j.state = 'ended' and n.state in ('new', 'ready', 'running')`,
  'a push job has ended, and a task of its nodes goes on': `
    select n.job::text || ' ' || n.server_uuid from cnapi_push_nodes n join cnapi_push_jobs j on j.id = n.job
      join cnapi_tasks t on t.id = n.task
      where j.state = 'ended' and t.state <> 'ended' and t.cancel_requested_at is null`,
  'a push job runs, and fewer nodes than its quorum were ready': `
    select j.id::text from cnapi_push_jobs j
      where j.state = 'running' and j.quorum > (
        select count(*) from cnapi_push_nodes n
          where n.job = j.id and (n.task is not null or n.state in ('ready', 'was_ready')))`,
  'a push job has another number of nodes than it says': `
    select j.id::text from cnapi_push_jobs j
      where j.node_count <> (select count(*) from cnapi_push_nodes n where n.job = j.id)`,
  'a push job votes, and its quorum is not the share of its nodes that it should be': `
    select j.id::text from cnapi_push_jobs j
      where j.state = 'voting' and j.quorum <> cnapi_push_quorum(j.quorum_percent, j.node_count)`,
  'a push job waits for its ticket, and one of its nodes was asked': `
    select n.job::text || ' ' || n.server_uuid from cnapi_push_nodes n join cnapi_push_jobs j on j.id = n.job
      where j.state = 'waiting' and n.state <> 'new'`,
  'a node was aborted before its start, and it has a task': `
    select n.job::text || ' ' || n.server_uuid from cnapi_push_nodes n
      where n.state in ('unavailable', 'was_ready') and n.reason = 'aborted' and n.task is not null`,
  'the events of a feed are not numbered without gaps': `
    select f.job::text || ' ' || f.last from (
      select g.job, g.last, g.last - coalesce(cardinality(g.nodes), 1) as follows,
          lag(g.last, 1, 1) over (partition by g.job order by g.last) as former from cnapi_push_feed g) as f
      where f.follows <> f.former`,
  'a push job counts other events of its feed than there are': `
    select j.id::text from cnapi_push_jobs j
      where j.last_event <> coalesce((select max(f.last) from cnapi_push_feed f where f.job = j.id), 1)`,
  'the task of a node is of a server that is not in that job': `
    select t.id::text from cnapi_tasks t join cnapi_push_nodes n on n.task = t.id where n.server_uuid <> t.server_uuid`,
};

const servers: Record<string, string> = {
  'a sysinfo or a report is stored of a server that does not exist': `
    select p.server_uuid::text
      from (select server_uuid from cnapi_server_sysinfo union all select server_uuid from cnapi_server_reports) as p
      where not exists (select 1 from cnapi_servers s where s.uuid = p.server_uuid)`,
};

/** The rows of VMs, the reports of their servers and the tasks that have ended agree. */
const vms: Record<string, string> = {
  'a VM is stored of a server that does not exist': `
    select v._key from cnapi_vms v where not exists (select 1 from cnapi_servers s where s.uuid = v.server_uuid)`,
  'the report of a server lacks a VM that is stored, or has it in another state': `
    select v._key || ' ' || coalesce(r.vms -> v._key ->> 'state', 'none') || ', stored: ' || (v._value ->> 'state')
      from cnapi_vms v left join cnapi_server_reports r on r.server_uuid = v.server_uuid
      where (r.vms -> v._key || jsonb_build_object('uuid', v._key)) is distinct from (v._value - 'control' - 'server_uuid')`,
  'a report has a VM that is not stored': `
    select e.key from cnapi_server_reports r cross join lateral jsonb_each(r.vms) e
      where not exists (select 1 from cnapi_vms v where v._key = e.key)`,
  'a VM is claimed by a task that has ended': `
    select v._key from cnapi_vms v
      where v._value -> 'control' ? 'unreported' and not exists (
        select 1 from cnapi_tasks t where t.server_uuid = v.server_uuid and t.state <> 'ended'
          and coalesce(t.idempotency_key, t.id::text) = v._value -> 'control' ->> 'claim')`,
  'a VM is stored although the task that destroyed it has just ended': `
    select v._key from cnapi_vms v join cnapi_tasks t on t.params ->> 'uuid' = v._key
      where t.name = 'machine_destroy' and t.outcome = 'complete' and t.ended_at > cnapi_now() - cnapi_vm_grace()`,
};

/** No world has VMs on the servers of claims, so the claims are all that is promised. */
const claims: Record<string, string> = {
  'a server has promised more room than it has': `
    select c.server_uuid::text || ' ' || sum(c.ram) from cnapi_placement_claims c
      where c.expires_at > cnapi_now() group by c.server_uuid having sum(c.ram) > ${SERVER_RAM}`,
  'a caller has more claims of room than it may': `
    select c.caller from cnapi_placement_claims c
      where c.expires_at > cnapi_now() and c.caller = '${CALLER_OF_ONE}' group by c.caller having count(*) > 1`,
};

export const invariants: Readonly<Record<string, string>> = {
  ...roster,
  ...instances,
  ...tasks,
  ...tickets,
  ...duties,
  ...workflowJobs,
  ...noderoles,
  ...pushJobs,
  ...servers,
  ...vms,
  ...claims,
};

const all = Object.entries(invariants)
  .map(([name, sql]) => `select '${name}: ' || complaint from (${sql}) as q (complaint)`)
  .join('\nunion all\n');

/** The violations since this entry of the log, a line each. */
export async function complaintsSince(database: Queryable, entry: number): Promise<string[]> {
  const { rows } = await database.query<{ complaint: string }>(`select * from (${all}) as q (complaint)`, [entry], {
    name: 'complaints',
  });
  return rows.map(({ complaint }) => complaint);
}
