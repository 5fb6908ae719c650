/** What agents have not read, over all connections. */
import t from 'tap';
import { MAX_UNSENT_BYTES, UnsentFrames } from '../../../lib/control/link/unsent-frames.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const MIB = 1024 * 1024;

function setUp() {
  const clock = new ManualClock();
  const unsent = new UnsentFrames({ clock, healthyTimer: clock });
  const ended: string[] = [];
  const connect = (name: string) => ({
    name,
    isOpen: true,
    unsentBytes: 0,
    endSlowReader() {
      this.isOpen = false;
      ended.push(name);
    },
  });
  const send = (connection: ReturnType<typeof connect>, mib: number) => {
    connection.unsentBytes += mib * MIB;
    unsent.sent(connection);
  };
  return { clock, connect, ended, send, unsent };
}

t.test('the unsent bytes of all connections are added up, and forgotten when they have left', async (t) => {
  const { clock, connect, send, unsent } = setUp();
  const [one, two] = [connect('one'), connect('two')];
  send(one, 2);
  send(two, 3);
  t.equal(unsent.bytes, 5 * MIB);
  send(two, 1);
  t.equal(unsent.bytes, 6 * MIB, 'at once');
  one.unsentBytes = 0;
  await clock.advance(20);
  t.equal(unsent.bytes, 4 * MIB);
  two.isOpen = false;
  await clock.advance(20);
  t.equal(unsent.bytes, 0);
});

t.test('above the bound, connections that stand still are ended, most unsent first, until it has room', async (t) => {
  const { clock, connect, ended, send, unsent } = setUp();
  const [small, large, moving, late] = ['small', 'large', 'moving', 'late'].map(connect) as [
    ReturnType<typeof connect>,
    ReturnType<typeof connect>,
    ReturnType<typeof connect>,
    ReturnType<typeof connect>,
  ];
  send(small, 10);
  send(large, 15);
  t.equal(unsent.isHalfFull, false);
  send(moving, MAX_UNSENT_BYTES / MIB - 25);
  t.equal(unsent.isFull, false, 'at the bound');
  t.equal(unsent.isHalfFull, true, 'questions of push jobs wait earlier');
  send(moving, 1);
  t.equal(unsent.isFull, true);
  await clock.advance(4_999);
  moving.unsentBytes -= 1;
  send(late, 20);
  t.same(ended, []);
  await clock.advance(1);
  t.same(ended, ['large', 'small'], 'the sum is at 60 MiB without them');
  t.equal(unsent.isFull, false);
  await clock.advance(60_000);
  t.same(ended, ['large', 'small']);
});

t.test('while the bound is exceeded, each connection has 5 s in which something must leave', async (t) => {
  const { clock, connect, ended, send, unsent } = setUp();
  const [one, two] = [connect('one'), connect('two')];
  send(one, 40);
  send(two, 40);
  t.equal(unsent.isFull, true);
  await clock.advance(4_000);
  one.unsentBytes -= 1;
  two.unsentBytes -= 1;
  await clock.advance(1_000);
  t.same(ended, []);
  two.unsentBytes -= 1;
  await clock.advance(5_000);
  t.same(ended, ['one']);
});
