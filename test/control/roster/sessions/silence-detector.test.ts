/** What the detector over the sessions reports to admission. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import type { SessionLosses } from '../../../../lib/control/roster/sessions/session-losses.ts';
import { SilenceDetector } from '../../../../lib/control/roster/sessions/silence-detector.ts';
import { HealthyTimer } from '../../../../lib/platform/healthy-timer.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const AGENTS = 40;
const TICK_MS = 250;
const unused = () => Promise.reject(new Error('not expected'));

function watchSessions({ isUnread = false } = {}) {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: TICK_MS });
  const sessions = new SessionTable();
  const world = { probes: 0, lost: 0 };
  const socket = idleSocket({
    isUnread,
    probe: () => {
      world.probes += 1;
    },
  });
  const detector = new SilenceDetector({
    database: { query: unused },
    sessions,
    sessionLosses: {
      lose: () => {
        world.lost += 1;
      },
    } as unknown as SessionLosses,
    healthyTimer,
    run: () => 'run',
    limits: { probeMs: 1_250, silenceMs: 2_000 },
    log: silentLogger,
  });
  for (let each = 0; each < AGENTS; each++)
    sessions.add({
      serverUuid: randomUUID(),
      epoch: 1,
      incarnation: randomUUID(),
      journalId: randomUUID(),
      capabilities: new Set(),
      socket,
      run: 'run',
      heardAt: 0,
    });
  healthyTimer.start();
  return { clock, detector, world };
}

t.test('agents whose heartbeats arrive a moment after a tick do not make their instance late', async (t) => {
  const { clock, detector, world } = watchSessions();
  // The last byte came just before the first of these ticks, so a little more than a second has passed.
  for (let tick = 0; tick < 5; tick++) await clock.advance(TICK_MS);
  t.equal(world.probes, AGENTS, 'each is probed');
  t.equal(detector.quiet, 0, 'none is overdue');
  await clock.advance(TICK_MS);
  t.equal(detector.quiet, AGENTS, 'all are overdue when 1,250 ms have certainly passed');
  t.equal(world.lost, 0);
});

t.test('an agent that is not read is probed all the same, so that it does not leave', async (t) => {
  const { clock, world } = watchSessions({ isUnread: true });
  for (let tick = 0; tick < 40; tick++) await clock.advance(TICK_MS);
  t.equal(world.probes, 8 * AGENTS, 'every 1,250 ms');
  t.equal(world.lost, 0);
});
