/** The table of the sessions that an instance holds. */
import t from 'tap';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { idleSocket } from '../../../support/idle-socket.ts';

const fields = (serverUuid: string, epoch: number) => ({
  ...{ serverUuid, epoch, incarnation: 'i', journalId: 'j', capabilities: new Set<string>(), run: 'r', heardAt: 7 },
  socket: idleSocket(),
});
const add = (table: SessionTable, serverUuid: string, epoch = 1) =>
  table.add(fields(serverUuid, epoch))?.session as Session;

t.test('the session of the highest epoch represents its server', async (t) => {
  const table = new SessionTable();
  const first = add(table, 'a', 2);
  t.match(first, { serverUuid: 'a', epoch: 2, run: 'r', heardAt: 7, quietMs: 0 });
  t.match(first, { isProbed: false, isInventoried: false, isEnded: false, lostFor: undefined });
  t.equal(table.add(fields('a', 1)), undefined, 'a connection that was accepted earlier comes too late');
  t.equal(table.get('a'), first);
  const second = table.add(fields('a', 3));
  t.equal(second?.replaced, first);
  t.equal(table.get('a'), second?.session);
  add(table, 'b');
  t.equal(table.size, 2);
  t.same(
    [...table.all()].map(({ serverUuid, epoch }) => [serverUuid, epoch]),
    [
      ['a', 3],
      ['b', 1],
    ],
  );
});

t.test('a session ends once, and the end of a replaced session leaves the present one', async (t) => {
  const table = new SessionTable();
  const [first, second] = [add(table, 'a', 1), add(table, 'a', 2)];
  t.ok(table.end(first));
  t.equal(table.get('a'), second);
  t.ok(table.end(second));
  t.ok(second.isEnded);
  t.equal(table.get('a'), undefined);
  const third = add(table, 'a', 3);
  t.notOk(table.end(second));
  t.equal(table.get('a'), third);
});

t.test('each registration has a higher number, so that a poll recognises what it could not see', async (t) => {
  const table = new SessionTable();
  table.addPending('a');
  const sentBefore = table.registrations;
  const session = add(table, 'a');
  t.ok(session.registration > sentBefore);
  t.equal(session.registration, table.registrations);
  const sentBetween = table.registrations;
  table.addPending('b');
  t.ok(table.registrations > sentBetween);
  const sentLater = table.registrations;
  table.moveToRun(session, 'next');
  t.equal(session.run, 'next');
  t.ok(session.registration > sentLater, 'its row moved after that poll was sent');
});

t.test('a server is pending until its last accept is answered', async (t) => {
  const table = new SessionTable();
  table.addPending('a');
  table.addPending('a');
  t.ok(table.isPending('a'));
  t.notOk(table.isPending('b'));
  table.removePending('a');
  t.ok(table.isPending('a'));
  table.removePending('a');
  t.notOk(table.isPending('a'));
  t.equal(table.size, 0);
});
