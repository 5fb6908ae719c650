/**
 * A minute of all statements at random by sixteen clients, with all invariants checked meanwhile
 * and afterwards, until everything accepted has ended. INTERLEAVINGS_SEED and INTERLEAVINGS_SECONDS
 * choose; INTERLEAVINGS_DEFECT adds the deliberate defect of that name, and then the test should
 * fail.
 */
import { randomInt, randomUUID } from 'node:crypto';
import t from 'tap';
import { insertRun } from '../../lib/control/roster/membership/instance-store.ts';
import { Servers } from '../../lib/control/servers/servers.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { FILE_TIMEOUT_MS, HANG_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { applyDefect, type Defective, defects } from './defects.ts';
import { complaintsSince } from './invariants.ts';
import { readKnowledge } from './knowledge.ts';
import { beginLog, installLab } from './lab-schema.ts';
import { rewriting } from './lane.ts';
import { CLIENTS, fastClock, Mix } from './mix.ts';
import { settle } from './settling.ts';
import { writingCalls } from './statements.ts';

const SERVERS = 6;
const RUNS = 4;
/** In a run of this many calls, the rarest call is expected sixteen times. */
const ENOUGH_CALLS = 20_000;
const seed = Number(process.env.INTERLEAVINGS_SEED ?? randomInt(1_000_000));
const seconds = Number(process.env.INTERLEAVINGS_SECONDS ?? 60);

t.setTimeout(FILE_TIMEOUT_MS);

t.test(`${CLIENTS} clients for ${seconds} s break no invariant, seed ${seed}`, async (t) => {
  const { database, open } = await freshDatabase(t, { migrations });
  await installLab(database);
  await database.query(fastClock);
  const documents = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await documents.start();
  const servers = Array.from({ length: SERVERS }, () => randomUUID());
  for (const uuid of servers) await documents.recordSysinfo(uuid, { UUID: uuid, Hostname: 'one' });
  await documents.stop();
  for (let n = 0; n < RUNS; n++) {
    const identity = { cnapiUuid: randomUUID(), url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, randomUUID(), identity, null);
  }
  const begunAt = await beginLog(database);

  const patient = { statementTimeoutMs: HANG_MS, lockTimeoutMs: HANG_MS };
  const target: Defective = { admin: database, rewrite: (text) => text };
  const pool = open({ maxConnections: CLIENTS, ...patient });
  const clients = rewriting(pool, (text) => target.rewrite(text));
  const defect = defects.find(({ name }) => name === process.env.INTERLEAVINGS_DEFECT);
  if (defect !== undefined) await applyDefect(target, defect);
  const checker = open({ maxConnections: 1, ...patient });
  const mix = new Mix({ clients, keeper: open(patient), checker, servers, seed, runMs: seconds * 1000 });
  await mix.run();
  const settled =
    mix.violations.length === 0 ? await settle(database, (await readKnowledge(database, servers)).seats) : undefined;

  const calls = [...mix.counts.values()].reduce((sum, count) => sum + count, 0);
  const { rows } = await database.query<{ entries: number }>('select last_value as entries from lab.changes');
  t.comment(
    `seed ${seed}: ${calls} calls, ${rows[0]?.entries} changes, ${mix.checks} checks meanwhile; ` +
      `settled in ${settled?.rounds} rounds; ${mix.violations.length} violations`,
  );
  t.comment(JSON.stringify(Object.fromEntries(mix.counts)));
  const complaints = await complaintsSince(checker, begunAt);
  // The name says what was violated: what reports failed tests often shows their names only.
  for (const [when, violations] of Object.entries({ meanwhile: mix.violations, afterwards: complaints }))
    t.equal(violations.length, 0, `nothing is violated ${when}: ${violations.slice(0, 3).join('; ')}`);
  if (settled !== undefined) t.equal(settled.repaired, 0, 'no queue had to be repaired');
  const wanted = writingCalls.filter(({ weight }) => weight > 0);
  const neverMade = wanted.map(({ name }) => name).filter((name) => !mix.counts.has(name));
  if (calls < ENOUGH_CALLS) t.comment(`never called, with so few calls: ${neverMade.join(', ') || 'none'}`);
  else t.same(neverMade, [], 'each call was made');
});
