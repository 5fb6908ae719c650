/**
 * Deliberate defects: the product's statements with a guard or a lock removed, as a careless change
 * might do, and the naive ones of `naive.ts`. They are put into a lane's database, or into the text
 * of a statement on its way there, and removed afterwards. The text to be cut must exist: a defect
 * that no longer fits the product's text fails its test.
 */
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { NAIVE_ACCEPT, NAIVE_CLAIM, NAIVE_RELEASE } from './naive.ts';

type Cut = readonly [from: string, to: string];

export interface Defect {
  name: string;
  /** The statements whose calls are affected. */
  statements: readonly string[];
  /**
   * Cut out of a function of the database, or out of the text of a statement that contains the
   * first text.
   */
  function?: string;
  cuts: readonly Cut[];
}

/** Replaces the whole text. */
const ALL = 'all';

export const defects: readonly Defect[] = [
  {
    name: 'naive accept: the guard and the epoch come from a CTE',
    statements: ['acceptSessions', 'acceptSession'],
    cuts: [['insert into cnapi_roster_authority as row', ALL + NAIVE_ACCEPT]],
  },
  {
    name: 'naive claim: the roster row is joined, not locked; the tasks are picked in a CTE',
    statements: ['claimTasks'],
    function: 'cnapi_claim_for_sessions',
    cuts: [[ALL, NAIVE_CLAIM]],
  },
  {
    name: 'naive release: finishes one and activates the next in one statement, without the queue',
    statements: ['releaseTicket'],
    function: 'cnapi_release_ticket',
    cuts: [[ALL, NAIVE_RELEASE]],
  },
  {
    name: 'accept: rows are taken in the order they are named',
    statements: ['acceptSessions', 'acceptSession'],
    cuts: [['order by hello.server_uuid\n       on conflict', 'on conflict']],
  },
  {
    name: 'status change: run and epoch are checked only in a CTE, without a lock',
    statements: ['recordLosses'],
    cuts: [
      [
        "where row.run = session.run and row.epoch = session.epoch and row.status = 'running'\n       order by row.server_uuid for update of row skip locked",
        "where row.run = session.run and row.epoch = session.epoch and row.status = 'running'",
      ],
      [
        "from session where row.server_uuid = session.server_uuid and row.server_uuid in (select server_uuid from locked)\n         and row.run = session.run and row.epoch = session.epoch and row.status = 'running'",
        'from session where row.server_uuid = session.server_uuid and row.server_uuid in (select server_uuid from locked)',
      ],
    ],
  },
  {
    name: 'status change of ownerless rows: run and epoch are checked only in a CTE, without a lock',
    statements: ['markOwnerlessUnknown'],
    cuts: [
      [
        "where row.run = ownerless.run and row.epoch = ownerless.epoch and row.status = 'running'\n       order by row.server_uuid for update of row skip locked",
        "where row.run = ownerless.run and row.epoch = ownerless.epoch and row.status = 'running'",
      ],
      [
        "(select server_uuid from locked)\n       and row.run = ownerless.run and row.epoch = ownerless.epoch and row.status = 'running'",
        '(select server_uuid from locked)',
      ],
    ],
  },
  {
    name: 'inventory: run and epoch are checked only in a CTE, without a lock',
    statements: ['recordInventories'],
    cuts: [
      ['set inventory_epoch = row.epoch', 'set inventory_epoch = session.epoch'],
      ['order by row.server_uuid for update of row skip locked', ''],
      [
        '(select server_uuid from locked)\n         and row.run = session.run and row.epoch = session.epoch',
        '(select server_uuid from locked)',
      ],
    ],
  },
  {
    name: 'new run: run and epoch are checked only in a CTE, without a lock',
    statements: ['renewRun'],
    cuts: [
      ['set run = $5::uuid', 'set run = $5::uuid'],
      ['order by row.server_uuid for update of row skip locked', ''],
      [
        "(select server_uuid from locked)\n         and row.run in (session.run, $5::uuid) and row.epoch = session.epoch and row.status = 'running'",
        '(select server_uuid from locked)',
      ],
    ],
  },
  {
    name: 'death: the beat is checked only in a CTE, without a lock',
    statements: ['declareLapsed'],
    cuts: [
      ['order by instance.run for update of instance skip locked', ''],
      [
        "(select run from locked)\n       and instance.beat = lapsed.beat and instance.state = 'live'",
        '(select run from locked)',
      ],
    ],
  },
  {
    name: 'drain: the instances are not locked',
    statements: ['drainRun'],
    function: 'cnapi_drain',
    cuts: [["perform 1 from cnapi_instances where state = 'live' order by run for update;", '']],
  },
  {
    name: 'legacy heartbeats: the rows of cnapi_status are not locked',
    statements: ['recordHeartbeats'],
    function: 'cnapi_record_legacy_heartbeats',
    cuts: [
      [
        'on conflict (server_uuid) do update set last_record = status.last_record where false',
        'on conflict (server_uuid) do nothing',
      ],
    ],
  },
  {
    name: 'legacy heartbeats: the roster rows are not locked',
    statements: ['recordHeartbeats'],
    function: 'cnapi_record_legacy_heartbeats',
    cuts: [['on conflict (server_uuid) do update set epoch = row.epoch where false', 'on conflict do nothing']],
  },
  {
    name: 'legacy heartbeats: the statement that waits for the row also reads whether a run is dead',
    statements: ['recordHeartbeats'],
    function: 'cnapi_record_legacy_heartbeats',
    cuts: [
      [
        `and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance
        where instance.run = row.run and instance.state <> 'dead'))
      and (row.status = 'running' or`,
        "and (row.status = 'running' or",
      ],
    ],
  },
  {
    name: 'legacy heartbeats: existing rows are locked before new ones are inserted',
    statements: ['recordHeartbeats'],
    function: 'cnapi_record_legacy_heartbeats',
    cuts: [
      [
        'with opened as (',
        `perform 1 from cnapi_roster_authority row where row.server_uuid = any (candidates)
           order by row.server_uuid for update;
         with opened as (`,
      ],
    ],
  },
  {
    name: 'silences: the last record is read without a lock',
    statements: ['recordSilences'],
    function: 'cnapi_record_legacy_silences',
    cuts: [['order by status.server_uuid for update skip locked', '']],
  },
  {
    name: 'sysinfos: the documents are not locked',
    statements: ['storeSysinfos'],
    cuts: [['for key share of s', '']],
  },
  {
    name: 'reports: the documents are not locked',
    statements: ['storeReports'],
    function: 'cnapi_store_reports',
    cuts: [['for key share of s', '']],
  },
  {
    name: 'VMs: the ends of tasks lock the reports of their servers one by one',
    statements: ['recordReports', 'endPosts', 'sweepTasks'],
    function: 'cnapi_lock_task_ends',
    cuts: [["starts_with(t.name, 'machine_')", 'false']],
  },
  {
    name: 'VMs: a claim does not lock the report of the server',
    statements: ['createTask'],
    function: 'cnapi_claim_vm',
    cuts: [['cnapi_lock_report(new.server_uuid)', 'exists (select from cnapi_servers where uuid = new.server_uuid)']],
  },
  {
    name: 'claim: the roster row is not locked',
    statements: ['claimTasks'],
    function: 'cnapi_claim_for_sessions',
    cuts: [['for share of r skip locked', '']],
  },
  {
    name: 'claim: the tasks are not locked',
    statements: ['claimTasks'],
    function: 'cnapi_claim_for_sessions',
    cuts: [
      [
        "t.id = fair.id and (t.state || '') = 'queued' for update skip locked",
        "t.id = fair.id and (t.state || '') = 'queued'",
      ],
    ],
  },
  {
    name: 'send again: a subquery checks whether it was accepted, without a lock',
    statements: ['resendTasks'],
    cuts: [
      ["where (t.state || '') = 'claimed' and t.accepted_at is null and t.id = any", 'where t.id = any'],
      ['for update skip locked', ''],
    ],
  },
  {
    name: 'inventory of tasks: neither roster row nor tasks are locked',
    statements: ['settleInventory'],
    function: 'cnapi_settle_inventories',
    cuts: [
      ['order by r.server_uuid for share skip locked', ''],
      ['free_tasks := cnapi_lock_task_ends(of_free_servers);', 'free_tasks := of_free_servers;'],
    ],
  },
  {
    name: 'reports: the tasks are not locked first',
    statements: ['recordReports'],
    function: 'cnapi_record_task_reports',
    cuts: [
      ['held := cnapi_lock_task_ends(ending) ||', 'held := ending ||'],
      ['order by t.id for update skip locked);', ');'],
    ],
  },
  {
    name: 'cancel: the state is read in a subquery',
    statements: ['cancelTask'],
    cuts: [
      [
        "where id = $1::uuid and state <> 'ended' and not (state = 'claimed' and posted_by is not null)",
        "where id = (select id from cnapi_tasks where id = $1::uuid and state <> 'ended' and not (state = 'claimed' and posted_by is not null))",
      ],
      [
        "case state when 'queued' then 'ended' else state end",
        "coalesce((select case s.state when 'queued' then 'ended' end from cnapi_tasks s where s.id = t.id), state)",
      ],
      [
        "outcome = case state when 'queued' then 'failure' end",
        "outcome = (select case s.state when 'queued' then 'failure' end from cnapi_tasks s where s.id = t.id)",
      ],
    ],
  },
  {
    name: 'sweep: the roster row is not locked',
    statements: ['sweepTasks'],
    function: 'cnapi_sweep_late_tasks',
    cuts: [['order by t.id for share of r skip locked', 'order by t.id']],
  },
  {
    name: 'task under a ticket: the ticket is not locked',
    statements: ['createTaskUnderTicket'],
    cuts: [['where uuid = $11::uuid\n         for share', 'where uuid = $11::uuid']],
  },
  {
    name: 'posts: the roster row is not locked',
    statements: ['claimPosts'],
    function: 'cnapi_claim_for_posts',
    cuts: [['for no key update of r skip locked', '']],
  },
  {
    name: 'posts of dead runs: read once, without a lock',
    statements: ['endPosts'],
    function: 'cnapi_end_posts',
    cuts: [
      ['picked := cnapi_lock_task_ends_up_to(array(', 'picked := (array('],
      ['limit 20 * p_most), p_most);', 'limit p_most));'],
      [" and (t.state || '') = 'claimed' and t.posted_by = any (p_runs)\n      returning", '\n      returning'],
    ],
  },
  {
    name: 'claim of duties: not read again under their locks',
    statements: ['claimDuties'],
    function: 'cnapi_claim_duties',
    cuts: [
      ['for update of d skip locked', ''],
      ['where d.id = any (picked) and cnapi_is_free_duty(d, moment)', 'where d.id = any (picked)'],
    ],
  },
  {
    name: 'end of duties: the holder is read, not locked',
    statements: ['settleDuties'],
    cuts: [
      ['order by d.id for update of d skip locked', 'order by d.id'],
      [
        "where d.id = wanted.id and d.id in (select id from unlocked)\n           and d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation",
        'where d.id = wanted.id and d.id in (select id from unlocked)',
      ],
    ],
  },
  {
    name: 'votes: the job is read, not locked',
    statements: ['storeVotes'],
    function: 'cnapi_store_push_votes',
    cuts: [['for share skip locked', '']],
  },
  {
    name: 'start of nodes: the job is read, not locked',
    statements: ['startNodes'],
    function: 'cnapi_start_push_nodes',
    cuts: [['where j.id = p_job for update', 'where j.id = p_job']],
  },
  {
    name: 'release, renew, delete: the queue is read, not locked',
    statements: ['releaseTicket', 'renewTicket', 'deleteTicket'],
    function: 'cnapi_lock_queue_of',
    cuts: [['for update of q', '']],
  },
  {
    name: 'create: the place is the highest place plus one',
    statements: ['addTicket'],
    function: 'cnapi_create_ticket',
    cuts: [
      [
        'do update set last_place = q.last_place + 1, updated_at = excluded.updated_at\n    returning q.key, q.last_place into mine',
        'do nothing',
      ],
      [
        'moment := cnapi_now();',
        `select q.key, 1 + coalesce(max(t.place), 0) as last_place into mine from cnapi_waitlist_queues q
         left join cnapi_waitlist_tickets t on t.queue = q.key
         where q.server_uuid = p_server_uuid and q.scope = p_scope and q.id = p_id group by q.key;
       update cnapi_waitlist_queues q set last_place = mine.last_place where q.key = mine.key;
       moment := cnapi_now();`,
      ],
    ],
  },
  {
    name: 'claim of room: the server is not locked',
    statements: ['claimRoom'],
    function: 'cnapi_claim_placement',
    cuts: [["perform pg_advisory_xact_lock(hashtextextended('placement ' || p_server, 0));", '']],
  },
  {
    name: 'claim of room: the caller is not locked',
    statements: ['claimRoom'],
    function: 'cnapi_claim_room',
    cuts: [["perform pg_advisory_xact_lock(hashtextextended('placement of ' || p_caller, 0));", '']],
  },
  {
    name: 'expire: the queues are not locked',
    statements: ['expireTickets'],
    function: 'cnapi_expire_tickets',
    cuts: [['for update of q, t skip locked', '']],
  },
  {
    name: 'delete all: the queues are not locked',
    statements: ['deleteQueues'],
    function: 'cnapi_delete_queues',
    cuts: [['order by q.key limit p_most\n      for update', 'order by q.key limit p_most']],
  },
];

/** Where a defect is put. */
export interface Defective {
  admin: Queryable;
  rewrite: (text: string) => string;
}

/** Puts a defect in place; returns how to remove it. */
export async function applyDefect(target: Defective, defect: Defect): Promise<() => Promise<void>> {
  if (defect.function === undefined) return applyToText(target, defect);
  const { rows } = await target.admin.query<{ text: string }>('select pg_get_functiondef($1::regproc) as text', [
    defect.function,
  ]);
  const text = rows[0]?.text ?? '';
  await target.admin.query(defect.cuts.reduce((changed, cut) => cutOut(changed, cut, defect.name), text));
  return async () => {
    await target.admin.query(text);
  };
}

async function applyToText(target: Defective, { name, cuts }: Defect): Promise<() => Promise<void>> {
  const mark = cuts[0]?.[0] ?? '';
  target.rewrite = (text) =>
    text.includes(mark) ? cuts.reduce((changed, cut) => cutOut(changed, cut, name), text) : text;
  return async () => {
    target.rewrite = (text) => text;
  };
}

function cutOut(text: string, [from, to]: Cut, name: string): string {
  if (to.startsWith(ALL)) return to.slice(ALL.length);
  if (from === ALL) return text.replace(/\$function\$.*\$function\$/s, () => `$function$${to}$function$`);
  if (!text.includes(from)) throw new Error(`the defect '${name}' does not fit any more: '${from}' does not exist`);
  return text.replace(from, () => to);
}
