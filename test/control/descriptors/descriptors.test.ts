import t from 'tap';
import { DescriptorWatch, descriptorLimit, descriptorsFor } from '../../../lib/control/descriptors/descriptors.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { recordingLogger } from '../../support/recording-logger.ts';

function watch(limit: number | undefined, probe?: () => Promise<string | undefined>) {
  const clock = new ManualClock();
  const said: Record<string, unknown>[] = [];
  const options = { maxAgents: 1000, clock, log: recordingLogger(said), limit: () => limit };
  const made = new DescriptorWatch(probe === undefined ? options : { ...options, probe });
  made.start();
  return { clock, said, made };
}

t.test('an instance warns at its start if the limit of descriptors is too low for maxAgents', async (t) => {
  matchLists(t, watch(1000).said, [{ level: 'warn', limit: 1000, wanted: descriptorsFor(1000), max_agents: 1000 }]);
  for (const enough of [descriptorsFor(1000), Number.POSITIVE_INFINITY, undefined])
    t.same(watch(enough).said, [], String(enough));
});

t.test('the limit is that of this process', async (t) => {
  t.ok(Number(descriptorLimit()) > 100);
});

t.test('it reports once a minute that no descriptor is left, and when some are free again', async (t) => {
  const state: { code: string | undefined } = { code: undefined };
  const { clock, said, made } = watch(undefined, async () => state.code);
  await clock.advance(20_000);
  t.same(said, []);
  state.code = 'EMFILE';
  await clock.advance(30_000);
  matchLists(t, said, [{ level: 'error', code: 'EMFILE', msg: /none are left/ }]);
  t.equal(said.length, 1);
  await clock.advance(60_000);
  t.equal(said.length, 2);
  state.code = undefined;
  await clock.advance(5_000);
  t.match(said.at(-1), { level: 'info', msg: /available again/ });
  await made.stop();
  t.equal(said.length, 3);
});

t.test('the system provides a descriptor on request', async (t) => {
  const { clock, said, made } = watch(undefined);
  await clock.advance(5_000);
  await made.stop();
  t.same(said, []);
});
