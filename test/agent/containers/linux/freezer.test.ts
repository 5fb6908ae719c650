/** Processes that are paused during a copy, with a runtime that does not always answer. */
import t from 'tap';
import { Freezer } from '../../../../lib/agent/containers/linux/freezer.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const RUN = { id: 'a', number: 1 };

/** The runtime refuses so many resumes. */
function freezerWith(refusals: number) {
  const clock = new ManualClock();
  const commands: string[] = [];
  const state = { isPaused: false, isPauseUnanswered: false, refusals };
  const freezer = new Freezer({
    clock,
    log,
    command: async (_, command) => {
      commands.push(command);
      if (command === 'resume' && state.refusals > 0) {
        state.refusals -= 1;
        throw new Error('runc resume: it did not answer in time');
      }
      state.isPaused = command === 'pause';
      if (command === 'pause' && state.isPauseUnanswered) throw new Error('runc pause: it did not answer in time');
    },
  });
  return { clock, commands, state, freezer };
}

t.test('processes are paused during the work only, also if it fails', async (t) => {
  const { freezer, state, commands } = freezerWith(0);
  await freezer.during(RUN, async () => void t.ok(state.isPaused));
  const failed = freezer.during(RUN, async () => {
    throw new Error('no room');
  });
  await t.rejects(failed, /no room/);
  t.notOk(state.isPaused);
  t.same(commands, ['pause', 'resume', 'pause', 'resume']);
});

t.test('processes go on after a pause that has failed, but may have stopped them', async (t) => {
  const { freezer, state } = freezerWith(0);
  state.isPauseUnanswered = true;
  const failed = freezer.during(RUN, async () => void t.fail('nothing is copied'));
  await t.rejects(failed, /runc pause/);
  t.notOk(state.isPaused);
});

t.test('a resume that is repeated later does not happen during the next copy', async (t) => {
  const { clock, freezer, state, commands } = freezerWith(5);
  const refused = t.rejects(freezer.during(RUN, async () => undefined));
  await clock.advance(0);
  await clock.advance(1_000);
  await refused;
  await freezer.during(RUN, async () => {
    await clock.advance(60_000);
    t.ok(state.isPaused);
  });
  t.notOk(state.isPaused);
  const before = commands.length;
  await clock.advance(60_000);
  t.equal(commands.length, before, 'nothing is left to do');
});

t.test('a resume that fails a few times is repeated before the work ends', async (t) => {
  const { clock, freezer, state } = freezerWith(4);
  const done = freezer.during(RUN, async () => undefined);
  await clock.advance(0);
  await clock.advance(1_000);
  await done;
  t.notOk(state.isPaused);
});

t.test('a resume that goes on failing ends the work with the reason, and is repeated until it succeeds', async (t) => {
  const { clock, freezer, state, commands } = freezerWith(7);
  const refused = t.rejects(
    freezer.during(RUN, async () => undefined),
    /container a are still paused.*did not answer/,
  );
  await clock.advance(0);
  await clock.advance(1_000);
  await refused;
  t.ok(state.isPaused);
  await clock.advance(20_000);
  t.ok(state.isPaused, 'two later attempts have failed too');
  await clock.advance(10_000);
  t.notOk(state.isPaused);
  await clock.advance(60_000);
  t.equal(commands.length, 9, 'nothing is resumed again afterwards');
});

for (const [name, end] of Object.entries({
  'whose run has ended': (freezer: Freezer): void => void freezer.forget(RUN),
  'of an agent that has stopped': (freezer: Freezer) => freezer.stop(),
}))
  t.test(`a container ${name} is not resumed any more`, async (t) => {
    const { clock, freezer, commands } = freezerWith(100);
    const refused = t.rejects(freezer.during(RUN, async () => undefined));
    await clock.advance(0);
    await clock.advance(1_000);
    await refused;
    end(freezer);
    const before = commands.length;
    await clock.advance(60_000);
    t.equal(commands.length, before);
  });
