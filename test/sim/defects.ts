/**
 * Deliberate defects that show the simulation can find one. Each changes a line or two of the
 * product's text, only in the process that asks for it: of a module while it is loaded, of a
 * migration before it is applied. Some are mistakes that the laws prevent. If the text of a defect
 * no longer exists, rewrite the defect (the test says so).
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Migration } from '../../lib/platform/postgres/migrations.ts';
import type { Invariant } from './checks.ts';
import type { ARRIVING, DUTIES } from './plan.ts';

export interface Defect {
  name: string;
  /** The invariant that it breaks; a run may find the effect through another one. */
  breaks: Invariant;
  /** The first seed that finds it, so that `npm test` need not run earlier ones again. */
  firstSeed: number;
  /** The kind of seeds; default: the common ones. */
  kind?: typeof ARRIVING | typeof DUTIES;
  file: string;
  was: string;
  is: string;
}

export const defects: Defect[] = [
  {
    name: 'a late tick counts as silence before the data that has arrived is read',
    breaks: 'I1',
    firstSeed: 38,
    file: 'lib/platform/healthy-timer.ts',
    was: 'if (elapsedMs > this.#checkMs * 2) return;',
    is: `if (elapsedMs > this.#checkMs * 2) {
      for (let late = elapsedMs; late > 0; late -= this.#checkMs)
        for (const listener of this.#tickListeners) listener(this.#checkMs);
      return;
    }`,
  },
  {
    name: 'silence is not noticed',
    breaks: 'I1',
    firstSeed: 4,
    file: 'lib/control/roster/sessions/silence.ts',
    was: 'if (silence.quietMs - tickMs >= limits.silenceMs) return',
    is: 'if (silence.quietMs - tickMs >= limits.silenceMs * 20) return',
  },
  {
    name: 'the rows of dead instances are never changed',
    breaks: 'I1',
    firstSeed: 2,
    file: 'lib/control/roster/sessions/ownerless-rows.ts',
    was: 'new UnchangedRows<HeldRow>(graceMs, {',
    is: 'new UnchangedRows<HeldRow>(Number.POSITIVE_INFINITY, {',
  },
  {
    name: 'a session that replaces another one takes its epoch',
    breaks: 'I2',
    firstSeed: 1,
    file: 'lib/control/roster/status/roster-store.ts',
    was: 'epoch = greatest(row.epoch + 1, excluded.epoch),',
    is: 'epoch = greatest(row.epoch, excluded.epoch - 1),',
  },
  {
    name: 'a status change checks neither the run nor the epoch',
    breaks: 'I2',
    firstSeed: 1,
    file: 'lib/control/roster/status/roster-store.ts',
    was: `from loss where row.server_uuid = loss.server_uuid and row.server_uuid in (select server_uuid from locked)
         and row.run = loss.run and row.epoch = loss.epoch and row.status`,
    is: 'from loss where row.server_uuid = loss.server_uuid and row.status',
  },
  {
    name: 'a row whose run is live counts as ownerless too',
    breaks: 'I2',
    firstSeed: 1,
    file: 'lib/control/roster/status/roster-store.ts',
    was: "state = 'live'",
    is: "state = 'nobody'",
  },
  {
    name: 'an agent starts a task again that it has ended and deleted from its journal',
    breaks: 'I3',
    firstSeed: 40,
    file: 'lib/agent/runner/answers.ts',
    was: "acknowledged.has(id) ? { do: 'say-ended' } : { do: 'take' };",
    is: "acknowledged.size < 0 ? { do: 'say-ended' } : { do: 'take' };",
  },
  {
    name: 'a command begins before the journal has it',
    breaks: 'I3',
    firstSeed: 2,
    file: 'lib/agent/runner/runner.ts',
    was: "await this.#deps.journal.append({ record: 'started',",
    is: "if (work.frame.id === '') await this.#deps.journal.append({ record: 'started',",
  },
  {
    name: 'the last ticket in the queue is the next one',
    breaks: 'I4',
    firstSeed: 4,
    file: 'lib/control/waitlist/migrations/003-advance.sql',
    was: "where t.queue = p_queue and t.status = 'queued'\n    order by t.place limit 1;",
    is: "where t.queue = p_queue and t.status = 'queued'\n    order by t.place desc limit 1;",
  },
  {
    name: 'a release activates no ticket',
    breaks: 'I4',
    firstSeed: 1,
    file: 'lib/control/waitlist/migrations/006-change.sql',
    was: `status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else`,
    is: `status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if not found then`,
  },
  {
    name: 'waits learn of their end only from the bus',
    breaks: 'I5',
    firstSeed: 12,
    file: 'lib/platform/waits/watches.ts',
    was: 'for (const id of this.#watched.keys()) this.#read(id);',
    is: '',
  },
  {
    name: 'a wait has no timeout',
    breaks: 'I5',
    firstSeed: 34,
    file: 'lib/platform/waits/watches.ts',
    was: '() => this.#awaiter?.settle());\n      signal',
    is: '() => {});\n      signal',
  },
  {
    name: 'a request is answered before its task is in the database',
    breaks: 'I6',
    firstSeed: 1,
    file: 'lib/control/tasks/tasks.ts',
    was: '? await createTask(this.#deps.database, task)',
    is: `? (createTask(this.#deps.database, task).catch(() => {}),
          { id: task.id, requestHash: task.requestHash, run: null })`,
  },
  {
    name: 'an end is acknowledged before it is recorded, and recorded once',
    breaks: 'I6',
    firstSeed: 30,
    file: 'lib/control/tasks/reports/recorder.ts',
    was: 'lost: (batch) => markRepeated(batch),',
    is: 'lost: (batch) => batch.every(({ acknowledge }) => (acknowledge?.(), true)),',
  },
  {
    name: 'a claim returns the parameters of its tasks while it holds its locks',
    breaks: 'I6',
    firstSeed: 2,
    file: 'lib/control/tasks/dispatch/claim-store.ts',
    was: 'params_bytes as "paramsBytes"\n       from cnapi_claim_for_sessions(',
    is: 'params_bytes as "paramsBytes", (select params from cnapi_tasks t where t.id = cnapi_claim_for_sessions.id)\n       from cnapi_claim_for_sessions(',
  },
  {
    name: 'an agent throws at a second end of a task',
    breaks: 'I7',
    firstSeed: 1,
    file: 'lib/agent/runner/runner.ts',
    was: "if (known?.state !== 'ended' || known.attempt !== attempt) return;",
    is: "if (known?.state !== 'ended' || known.attempt !== attempt) throw new Error(id);",
  },
  {
    name: 'an instance keeps the connections that have ended',
    breaks: 'I7',
    firstSeed: 1,
    file: 'lib/control/link/link-server.ts',
    was: 'if (this.#connections.delete(connection)) this.#shared.leave(connection.shared);',
    is: 'this.#shared.leave(connection.shared);',
  },
  {
    name: 'an instance does not start while its database is unreachable',
    breaks: 'I6',
    firstSeed: 19,
    file: 'lib/platform/postgres/pool.ts',
    was: 'if (!isTemporary(error)) throw error;\n      const waitedMs',
    is: 'if (error !== undefined) throw error;\n      const waitedMs',
  },
  {
    name: 'an instance admits every agent that arrives, however late it is',
    breaks: 'I1',
    firstSeed: 7,
    kind: 'arriving-',
    file: 'lib/control/roster/accept/arrivals.ts',
    was: 'if (mayAdmit(this.#state',
    is: 'if (this.#underWay >= 0 || mayAdmit(this.#state',
  },
  {
    name: 'an instance that was late once never admits an agent again',
    breaks: 'I1',
    firstSeed: 6,
    kind: 'arriving-',
    file: 'lib/control/roster/accept/admission.ts',
    was: 'const measured = loadOf({ ...pressure, loopLateMs });',
    is: "const { load, why } = before.load === 'late' ? before : loadOf({ ...pressure, loopLateMs });\n  const measured: Measured = { load, why };",
  },
  {
    name: 'the duties of a dead instance are not taken over',
    breaks: 'I8',
    firstSeed: 1,
    kind: 'duties-',
    file: 'lib/control/duty/duty-store.ts',
    was: 'select cnapi_is_free_duty(d, cnapi_now()) as is_free,',
    is: "select d.state = 'waiting' as is_free,",
  },
  {
    name: 'the end of a duty is stored whoever holds it now',
    breaks: 'I8',
    firstSeed: 4,
    kind: 'duties-',
    file: 'lib/control/duty/duty-store.ts',
    was: `where d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation
         order by d.id for update of d skip locked
     ), settled as (
       update cnapi_duties d
         set state = case when wanted.outcome is null then 'waiting' else 'ended' end, run = null, outcome = wanted.outcome,
           ended_at = case when wanted.outcome is not null then cnapi_now() end,
           failures = d.failures + case when wanted.pause_ms > 0 then 1 else 0 end,
           waiting_since = cnapi_now(), claimable_at = cnapi_now() + wanted.pause_ms * interval '1 ms'
         from wanted
         where d.id = wanted.id and d.id in (select id from unlocked)
           and d.state = 'held' and d.run = $1::uuid and d.generation = wanted.generation`,
    is: `where d.state = 'held'
         order by d.id for update of d skip locked
     ), settled as (
       update cnapi_duties d
         set state = case when wanted.outcome is null then 'waiting' else 'ended' end, run = null, outcome = wanted.outcome,
           ended_at = case when wanted.outcome is not null then cnapi_now() end,
           failures = d.failures + case when wanted.pause_ms > 0 then 1 else 0 end,
           waiting_since = cnapi_now(), claimable_at = cnapi_now() + wanted.pause_ms * interval '1 ms'
         from wanted
         where d.id = wanted.id and d.id in (select id from unlocked) and d.state = 'held'`,
  },
  // The following defects were found in the product while the simulation was written.
  {
    name: 'the tick in which the last byte came counts as silence',
    breaks: 'I1',
    firstSeed: 4,
    file: 'lib/control/roster/sessions/silence.ts',
    was: 'if (silence.quietMs - tickMs >= limits.silenceMs) return',
    is: 'if (silence.quietMs >= limits.silenceMs) return',
  },
  {
    name: 'a journal that was rolled back within its session counts as whole',
    breaks: 'I3',
    firstSeed: 118,
    file: 'lib/control/tasks/record/task.ts',
    was: 'const isRolledBack = task.wasAccepted && agent.known === undefined;',
    is: 'const isRolledBack = false;',
  },
];

const root = fileURLToPath(new URL('../../', import.meta.url));

/** Whether the text that the defect changes occurs exactly once. */
export function isPresent({ file, was }: Defect): boolean {
  return readFileSync(`${root}${file}`, 'utf8').split(was).length === 2;
}

let inMigrations: Defect | undefined;

/**
 * From now on this process runs the product with the defect. Call it before any import of the
 * product.
 */
export function apply(defect: Defect): void {
  const { file, was, is } = defect;
  if (!isPresent(defect)) throw new Error(`${file} has not, or not once, what "${defect.name}" changes`);
  if (file.endsWith('.sql')) {
    inMigrations = defect;
    return;
  }
  const path = `${root}${file}`;
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      if (!url.startsWith('file:') || fileURLToPath(url) !== path) return loaded;
      return { ...loaded, source: String(loaded.source).replace(was, () => is) };
    },
  });
}

/**
 * Puts the applied defect into the migrations, if its text is in one of them. Changes them in place:
 * the instances of the simulation compare the database with the same ones.
 */
export function makeDefective(migrations: readonly Migration[]): void {
  if (inMigrations === undefined) return;
  const { file, was, is } = inMigrations;
  const text = readFileSync(`${root}${file}`, 'utf8');
  const changed = migrations.find(({ sql }) => sql === text);
  if (changed === undefined) throw new Error(`${file} is no migration`);
  changed.sql = text.replace(was, () => is);
}
