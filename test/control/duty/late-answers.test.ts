/** An instance with duties, while the answers of its database come late. */
import t from 'tap';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { createDuties } from '../../support/create-duties.ts';
import { holdAnswers } from '../../support/hold-answers.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';
import { dutyRow, KIND, newIds, startInstance } from './support.ts';

t.test('work whose run was declared dead while the claim was answered stops at once', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const held = holdAnswers(database);
  const one = await startInstance(t, { database: held.database, hub: new MemoryHub() });
  const [id = ''] = newIds(1);
  await createDuties(database, KIND, [id]);
  const claim = held.hold('cnapi_claim_duties');
  one.keeper.offer();
  await claim.reached;
  one.run = await liveRun(database);
  one.keeper.runRenewed();
  // No later round compares.
  const compare = held.hold("where run = $1::uuid and state = 'held'");
  claim.release();
  await compare.reached;
  t.equal(one.handler.begun.length, 1);
  t.match(one.keeper.stats(), { lost: 1 });
  compare.release();
});

t.test('a duty that is claimed while its instance leaves is handed over', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const held = holdAnswers(database);
  const one = await startInstance(t, { database: held.database, hub: new MemoryHub() });
  const [id = ''] = newIds(1);
  await createDuties(database, KIND, [id]);
  const claim = held.hold('cnapi_claim_duties');
  one.keeper.offer();
  await claim.reached;
  one.keeper.handOver();
  claim.release();
  await until(() => one.keeper.stats().handedOver === 1, 'the hand-over');
  t.match(one.keeper.stats(), { claimed: 1 });
  t.equal((await dutyRow(database, id)).state, 'waiting');
});

t.test('a duty whose end is stored is not lost, although its holder has no answer yet', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const held = holdAnswers(database);
  const one = await startInstance(t, { database: held.database, hub: new MemoryHub() });
  const [id = '', other = ''] = newIds(2);
  await createDuties(database, KIND, [id]);
  one.keeper.offer();
  await until(() => one.handler.working.has(id), 'the work to begin');
  const end = held.hold('with wanted');
  one.handler.working.get(id)?.end();
  await end.reached;
  await createDuties(database, KIND, [other]);
  one.keeper.offer();
  await until(() => one.handler.working.has(other), 'the next round');
  end.release();
  await until(() => one.keeper.stats().ended === 1, 'the answer');
  t.match(one.keeper.stats(), { lost: 0, ended: 1 });
});
