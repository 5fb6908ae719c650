/**
 * The statements of a task's life, for `pgbench`: the product's own statements, as its stores send
 * them, in a separate database with the product's tables. Each client has its own server and takes
 * one task after the other from creation through claim to end, as an instance without other work
 * would do.
 */

import { claimTasks, readDispatches } from '../../lib/control/tasks/dispatch/claim-store.ts';
import { recordReports } from '../../lib/control/tasks/reports/report-store.ts';
import { createTask } from '../../lib/control/tasks/store/task-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { statementsOf, toScript } from './pgbench.ts';

const RUN = '11111111-1111-4111-8111-111111111111';
const JOURNAL = '22222222-2222-4222-8222-222222222222';
const TASK = '33333333-3333-4333-8333-333333333333';
const SERVER = '44444444-4444-4444-8444-444444444444';
/** Random over the whole range, like a task's id. */
const ANY_TASK = 'md5(:task::text)::uuid';
const OWN_SERVER = 'md5(:client_id::text)::uuid';

/** The four statements of a task that an agent accepts, starts and ends immediately. */
export async function taskLifeScript(): Promise<string> {
  const subject = { id: TASK, serverUuid: SERVER, attempt: 1 };
  const reportedAt = 'now';
  const life = [
    ...(await statementsOf((database) => createTask(database, newTask))),
    ...(await statementsOf((database) => claimTasks(database, RUN, claim))),
    ...(await statementsOf((database) => readDispatches(database, [given]))),
    ...(await statementsOf((database) =>
      recordReports(database, [
        { subject, report: { name: 'accepted', reportedAt } },
        { subject, report: { name: 'started', reportedAt } },
        { subject, report: { name: 'complete', reportedAt, resultJson: '{}' } },
      ]),
    )),
  ];
  const expressions = new Map([
    [TASK, ANY_TASK],
    [SERVER, OWN_SERVER],
  ]);
  return `\\set task random(1, 9000000000000000000)\n${life.map((each) => toScript(each, expressions)).join('')}`;
}

/** Creates a server for each client, held by the run that the script uses in its claims. */
export async function prepareTaskLife(database: Queryable, clients: number): Promise<void> {
  await database.query(
    `insert into cnapi_roster_authority
         (server_uuid, cnapi_uuid, run, epoch, status, reason, since, journal_id, incarnation, conn)
       select md5(client::text)::uuid, $2::uuid, $2::uuid, 1, 'running', 'connected', cnapi_now(), $3::uuid, $3::uuid, 1
         from generate_series(0, $1::int - 1) as client`,
    [clients, RUN, JOURNAL],
  );
}

const newTask = {
  id: TASK,
  serverUuid: SERVER,
  name: 'nop',
  params: {},
  timeoutMs: 3_600_000,
  idempotent: true,
  idempotencyKey: undefined,
  requestHash: '0'.repeat(64),
  requestId: TASK,
};

const given = { id: TASK, serverUuid: SERVER, attempt: 1, epoch: 1, paramsBytes: 2 };

const claim = {
  sessions: [{ serverUuid: SERVER, epoch: 1, journalId: JOURNAL }],
  resendMs: 5_000,
};
