/**
 * Deliberate defects that show the simulation can find one. Each changes a line or two of the
 * product's text, only in the process that asks for it: of a module while it is loaded, of a
 * migration before it is applied. Some are mistakes that the laws prevent. If the text of a defect
 * no longer exists, rewrite the defect (the test says so).
 */
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Migration } from '../../lib/platform/postgres/migrations.ts';
import { fileWith, type TextChange } from '../support/product-text.ts';
import { annealerDefects } from './annealer-defects.ts';
import type { Invariant } from './checks.ts';
import type { ANNEALER, ARRIVING, DUTIES, PUSH, VMS, WORKFLOWS } from './seed-kinds.ts';
import { vmDefects } from './vm-defects.ts';
import { workflowDefects } from './workflow-defects.ts';

export interface Defect extends TextChange {
  name: string;
  /** The invariant that it breaks; a run may find the effect through another one. */
  breaks: Invariant;
  /** The first seed that finds it, so that `npm test` need not run earlier ones again. */
  firstSeed: number;
  /** The kind of seeds; default: the common ones. */
  kind?: typeof ARRIVING | typeof DUTIES | typeof PUSH | typeof VMS | typeof WORKFLOWS | typeof ANNEALER;
  /** Where a second place keeps the same rule. */
  also?: TextChange;
}

export const defects: Defect[] = [
  {
    name: 'a late tick counts as silence before the data that has arrived is read',
    breaks: 'I1',
    firstSeed: 38,
    find: 'if (elapsedMs > this.#checkMs * 2) return;',
    put: `if (elapsedMs > this.#checkMs * 2) {
      for (let late = elapsedMs; late > 0; late -= this.#checkMs)
        for (const listener of this.#tickListeners) listener(this.#checkMs);
      return;
    }`,
  },
  {
    name: 'silence is not noticed',
    breaks: 'I1',
    firstSeed: 4,
    find: 'if (silence.quietMs - tickMs >= limits.silenceMs) return',
    put: 'if (silence.quietMs - tickMs >= limits.silenceMs * 20) return',
  },
  {
    name: 'the rows of dead instances are never changed',
    breaks: 'I1',
    firstSeed: 2,
    find: 'new UnchangedRows<HeldRow>(graceMs, {',
    put: 'new UnchangedRows<HeldRow>(Number.POSITIVE_INFINITY, {',
  },
  {
    name: 'a session that replaces another one takes its epoch',
    breaks: 'I2',
    firstSeed: 1,
    find: 'epoch = greatest(row.epoch + 1, excluded.epoch),',
    put: 'epoch = greatest(row.epoch, excluded.epoch - 1),',
  },
  {
    name: 'a status change checks neither the run nor the epoch',
    breaks: 'I2',
    firstSeed: 1,
    find: 'isHeld: "row.run = session.run and row.epoch = session.epoch and row.status = \'running\'"',
    put: 'isHeld: "row.status = \'running\'"',
  },
  {
    name: 'a row whose run is live counts as ownerless too',
    breaks: 'I2',
    firstSeed: 1,
    find: "instance.run = row.run and instance.state = 'live')`",
    put: "instance.run = row.run and instance.state = 'nobody')`",
  },
  {
    name: 'an agent starts a task again that it has ended and deleted from its journal',
    breaks: 'I3',
    firstSeed: 61,
    find: "acknowledged.has(id) ? { do: 'say-ended' } : { do: 'take' };",
    put: "acknowledged.size < 0 ? { do: 'say-ended' } : { do: 'take' };",
  },
  {
    name: 'a command begins before the journal has it',
    breaks: 'I3',
    firstSeed: 36,
    find: 'if (record !== undefined) await journal.append(record);',
    put: "if (record !== undefined && work.frame.id === '') await journal.append(record);",
  },
  {
    name: 'the last ticket in the queue is the next one',
    breaks: 'I4',
    firstSeed: 4,
    find: "where t.queue = p_queue and t.status = 'queued'\n    order by t.place limit 1;",
    put: "where t.queue = p_queue and t.status = 'queued'\n    order by t.place desc limit 1;",
  },
  {
    name: 'a release activates no ticket',
    breaks: 'I4',
    firstSeed: 1,
    find: `status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else`,
    put: `status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if not found then`,
  },
  {
    name: 'waits learn of their end only from the bus',
    breaks: 'I5',
    firstSeed: 12,
    find: 'for (const id of this.#watched.keys()) this.#read(id);',
    put: '',
  },
  {
    name: 'a wait has no timeout',
    breaks: 'I5',
    firstSeed: 34,
    find: '() => this.#awaiter?.settle());\n      signal',
    put: '() => {});\n      signal',
  },
  {
    name: 'a request is answered before its task is in the database',
    breaks: 'I6',
    firstSeed: 1,
    find: '? createTask(this.#deps.database, task)',
    put: `? (createTask(this.#deps.database, task).catch(() => {}),
          Promise.resolve({ id: task.id, requestHash: task.requestHash, run: null }))`,
  },
  {
    name: 'an end is acknowledged before it is recorded, and recorded once',
    breaks: 'I6',
    firstSeed: 30,
    find: 'onLost: (batch) => markRepeated(batch),',
    put: 'onLost: (batch) => batch.every(({ acknowledge }) => (acknowledge?.(), true)),',
  },
  {
    name: 'a claim returns the parameters of its tasks while it holds its locks',
    breaks: 'I6',
    firstSeed: 2,
    find: 'params_bytes as "paramsBytes"\n       from cnapi_claim_for_sessions(',
    put: 'params_bytes as "paramsBytes", (select params from cnapi_tasks t where t.id = cnapi_claim_for_sessions.id)\n       from cnapi_claim_for_sessions(',
  },
  {
    name: 'an agent throws at a second end of a task',
    breaks: 'I7',
    firstSeed: 14,
    find: "if (known?.state !== 'ended' || known.attempt !== attempt) return;",
    put: "if (known?.state !== 'ended' || known.attempt !== attempt) throw new Error(id);",
  },
  {
    name: 'an instance keeps the connections that have ended',
    breaks: 'I7',
    firstSeed: 1,
    find: 'if (this.#connections.delete(connection)) this.#quotas.leave(connection.quota, this.#deps.clock.now());',
    put: 'this.#quotas.leave(connection.quota, this.#deps.clock.now());',
  },
  {
    name: 'an instance does not start while its database is unreachable',
    breaks: 'I6',
    firstSeed: 19,
    find: 'if (!isTemporary(error)) throw error;\n      const waitedMs',
    put: 'if (error !== undefined) throw error;\n      const waitedMs',
  },
  {
    name: 'an instance admits every agent that arrives, however late it is',
    breaks: 'I1',
    firstSeed: 7,
    kind: 'arriving-',
    find: 'if (mayAdmit(this.#state',
    put: 'if (this.#concurrentAdmissions >= 0 || mayAdmit(this.#state',
  },
  {
    name: 'an instance that was late once never admits an agent again',
    breaks: 'I1',
    firstSeed: 6,
    kind: 'arriving-',
    find: 'const measured = measureLoad({ ...pressure, loopLateMs });',
    put: "const { load, why } = before.load === 'late' ? before : loadOf({ ...pressure, loopLateMs });\n  const measured: Measured = { load, why };",
  },
  {
    name: 'the rows of dead instances do not wait for agents that were told to return',
    breaks: 'I1',
    firstSeed: 6,
    kind: 'arriving-',
    find: "awaited?.runs.has(row.run) ? 'waiting' : 'others'",
    put: "'others'",
  },
  {
    name: 'the duties of a dead instance are not taken over',
    breaks: 'I8',
    firstSeed: 5,
    kind: 'duties-',
    find: 'else d.run = any (now.ended) and cnapi_is_free_duty(d, now.moment) end as is_free',
    put: 'else false end as is_free',
  },
  {
    name: 'the end of a duty is stored whoever holds it now',
    breaks: 'I8',
    firstSeed: 59,
    kind: 'duties-',
    find: `where d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation
         order by d.id for update of d skip locked
     ), settled as (
       update cnapi_duties d
         set state = case when wanted.is_end then 'ended' else 'waiting' end, run = null,
           ended_at = case when wanted.is_end then cnapi_now() end,
           failures = d.failures + case when wanted.pause_ms > 0 then 1 else 0 end,
           waiting_since = cnapi_now(), claimable_at = cnapi_now() + wanted.pause_ms * interval '1 ms'
         from wanted
         where d.id = wanted.id and d.id in (select id from unlocked)
           and d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation`,
    put: `where d.state = 'held'
         order by d.id for update of d skip locked
     ), settled as (
       update cnapi_duties d
         set state = case when wanted.is_end then 'ended' else 'waiting' end, run = null,
           ended_at = case when wanted.is_end then cnapi_now() end,
           failures = d.failures + case when wanted.pause_ms > 0 then 1 else 0 end,
           waiting_since = cnapi_now(), claimable_at = cnapi_now() + wanted.pause_ms * interval '1 ms'
         from wanted
         where d.id = wanted.id and d.id in (select id from unlocked) and d.state = 'held'`,
  },
  {
    name: 'a push job starts with fewer votes than its quorum',
    breaks: 'I9',
    firstSeed: 1,
    kind: 'push-',
    find: 'nodeCounts.ready > 0 && nodeCounts.ready >= job.quorum',
    put: 'nodeCounts.ready > 0',
    also: { find: 'job.abort_requested is null and job.quorum <= (', put: 'job.abort_requested is null and 0 < (' },
  },
  {
    name: 'what a former holder of a duty writes is stored',
    breaks: 'I9',
    firstSeed: 14,
    kind: 'push-',
    find: `where d.id = p_id and d.state = 'held' and d.run = p_run and d.generation = p_generation
    for share;`,
    put: 'where d.id = p_id for share;',
  },
  {
    name: 'a server leaves a push job without its agent having said so',
    breaks: 'I9',
    firstSeed: 6,
    kind: 'push-',
    find: `update cnapi_push_busy b set rehab_since = cnapi_now()
    where b.server_uuid`,
    put: `delete from cnapi_push_busy b
    where b.server_uuid`,
  },
  {
    name: 'a server whose command has ended stays in its push job',
    breaks: 'I9',
    firstSeed: 1,
    kind: 'push-',
    find: 'delete from cnapi_push_busy b where b.server_uuid = any (idle) and b.job = p_job;',
    put: '',
  },
  {
    name: 'a server stays in rehab when its agent has left the push job',
    breaks: 'I9',
    firstSeed: 1,
    kind: 'push-',
    find: 'delete from cnapi_push_busy b where b.server_uuid = any (free);',
    put: '',
  },
  {
    name: 'a vote counts after the abort of its push job',
    breaks: 'I9',
    firstSeed: 2,
    kind: 'push-',
    find: "where j.id = any (free_jobs) and j.state in ('voting', 'running'));",
    put: "where j.id = any (free_jobs) and j.state <> 'ended');",
    also: {
      find: "where n.job = p_job and (n.state = 'new' or n.state = 'ready' and n.task is null)\n        and",
      put: "where n.job = p_job and n.state = 'ready' and n.task is null\n        and",
    },
  },
  {
    name: 'the tasks of a push job that ends are not cancelled',
    breaks: 'I9',
    firstSeed: 2,
    kind: 'push-',
    find: `locked_tasks := cnapi_cancel_tasks(array(
      select n.task from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (given_up) and n.task is not null),
    p_cancelled, p_cancelled_uncertain);`,
    put: "locked_tasks := '{}';",
    also: {
      find: 'except select unnest(cnapi_cancel_tasks(picked_tasks, p_cancelled, p_cancelled_uncertain))',
      put: '',
    },
  },
  {
    name: 'nodes of a push job that have started are started again',
    breaks: 'I9',
    firstSeed: 1,
    kind: 'push-',
    find: "where n.job = p_job and n.state = 'ready' and n.task is null and n.abort_requested is null\n      order by n.server_uuid limit greatest",
    put: "where n.job = p_job and n.state in ('ready', 'running')\n      order by n.server_uuid limit greatest",
  },
  {
    name: 'an instance that takes over a push job aborts it',
    breaks: 'I9',
    firstSeed: 1,
    kind: 'push-',
    find: 'return await this.#rounds(duty, active, AbortSignal.any([signal, attemptEnded.signal]));',
    put: `if (duty.generation > 1)
        await abortJob(this.#deps.database, duty, { ending: 'aborted', soft: false, reason: 'its instance died', limit: 1 });
      return await this.#rounds(duty, active, AbortSignal.any([signal, attemptEnded.signal]));`,
  },
  {
    name: 'a push job asks its agents while its ticket is queued',
    breaks: 'I9',
    firstSeed: 7,
    kind: 'push-',
    find: "if (ticket === 'active' || ticket === 'none') return",
    put: "if (ticket !== 'lost') return",
  },
  ...vmDefects,
  ...workflowDefects,
  ...annealerDefects,
  // The following defects were found in the product while the simulation was written.
  {
    name: 'the tick in which the last byte came counts as silence',
    breaks: 'I1',
    firstSeed: 4,
    find: 'if (silence.quietMs - tickMs >= limits.silenceMs) return',
    put: 'if (silence.quietMs >= limits.silenceMs) return',
  },
  {
    name: 'a journal that was rolled back within its session counts as whole',
    breaks: 'I3',
    firstSeed: 118,
    find: 'const isRolledBack = hasLostStart || (task.wasAccepted && agent.known === undefined);',
    put: 'const isRolledBack = hasLostStart;',
  },
  {
    name: 'the time that the counter of deadlines catches up with counts for a push job',
    breaks: 'I9',
    firstSeed: 60,
    kind: 'push-',
    find: 'return Math.max(0, countedMs - this.#lagMs);',
    put: 'return countedMs;',
  },
];

const inMigrations: TextChange[] = [];

/**
 * Makes this process run the product with the defect. Call it before any import of the product.
 */
export function apply(defect: Defect): void {
  for (const change of changesOf(defect)) applyOne(change);
}

export const changesOf = ({ find, put, also }: Defect): TextChange[] => [
  { find, put },
  ...(also === undefined ? [] : [also]),
];

function applyOne(change: TextChange): void {
  const { find, put } = change;
  const file = fileWith(find);
  if (file.endsWith('.sql')) {
    inMigrations.push(change);
    return;
  }
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (!url.startsWith('file:') || fileURLToPath(url) !== file) return loaded;
      return { ...loaded, source: String(loaded.source).replace(find, () => put) };
    },
  });
}

/**
 * Puts the applied defect into the migrations, if its text is in one of them. Changes them in
 * place: the instances of the simulation compare the database with the same ones.
 */
export function makeDefective(migrations: readonly Migration[]): void {
  for (const { find, put } of inMigrations) {
    const changed = migrations.find(({ sql }) => sql.includes(find));
    if (changed === undefined) throw new Error(`no migration contains: ${find}`);
    changed.sql = changed.sql.replace(find, () => put);
  }
}
