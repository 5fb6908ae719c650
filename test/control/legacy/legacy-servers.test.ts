import t from 'tap';
import {
  type HeartbeatRow,
  LegacyServers,
  type RecordedHeartbeat,
} from '../../../lib/control/legacy/legacy-servers.ts';
import { matchLists } from '../../support/match-lists.ts';

const LIMITS = { lifetimeMs: 11_000, silenceMs: 16_000, maxServers: 5, maxNew: 3 };
const A = 'server-a';

/** A session outranks the server's heartbeats. */
const OUTRANKED = { epoch: null };

/**
 * One instance's table. Healthy time and the clock of its process agree unless a step says
 * otherwise.
 */
class Rig {
  readonly heartbeats = new LegacyServers(LIMITS);
  now = 0;

  pass(ms: number): this {
    for (let left = ms; left > 0; left -= 250) {
      this.now += 250;
      this.heartbeats.countHealthyTick(250);
    }
    return this;
  }
  receive(serverUuid = A) {
    return this.heartbeats.receive(serverUuid, this.now);
  }
  post(): this {
    this.receive();
    return this;
  }
  /** The database answers that all of them exist, with this record. Returns what was recorded. */
  record(which: 'urgent' | 'all', answer: Partial<RecordedHeartbeat> = {}): string[] {
    const batch = this.heartbeats.take(which, this.now);
    const of = (serverUuid: string) => ({ serverUuid, epoch: 1, lastRecord: 1, cameBack: true, ...answer });
    this.heartbeats.recorded(
      batch,
      batch.map(({ serverUuid }) => of(serverUuid)),
    );
    return batch.map(({ serverUuid }) => serverUuid);
  }
  write(answer: Partial<RecordedHeartbeat> = {}): this {
    this.record('all', answer);
    return this;
  }
  findNobody(): this {
    this.heartbeats.recorded(this.heartbeats.take('all', this.now), []);
    return this;
  }
  read(...rows: Partial<HeartbeatRow>[]): this {
    this.heartbeats.readRows(rows.map((row) => ({ serverUuid: A, epoch: 1, lastRecord: 1, ...row })));
    return this;
  }
  readFails(): this {
    this.heartbeats.readFailed();
    return this;
  }
  judgeInVain(): this {
    this.heartbeats.statusTried(this.heartbeats.due(), new Set());
    return this;
  }
  due() {
    return this.heartbeats.due().map(({ serverUuid, lastRecord }) => `${serverUuid} ${lastRecord}`);
  }
}

t.test('each post is recorded at once or with its period', async (t) => {
  const table: { name: string; before(rig: Rig): unknown; heard: string; atOnce: string[]; inAll: string[] }[] = [
    { name: 'the first post of a server is urgent', before() {}, heard: 'urgent', atOnce: [A], inAll: [] },
    {
      name: 'a post of a server in the table waits for the period',
      before: (rig) => rig.read({}),
      heard: 'noted',
      atOnce: [],
      inAll: [A],
    },
    {
      name: 'a post after a silence is urgent, because the server may be unknown by now',
      before: (rig) => rig.read({}).pass(11_000),
      heard: 'urgent',
      atOnce: [A],
      inAll: [],
    },
    {
      name: 'a post of a server with a session waits for the period',
      before: (rig) => rig.post().write(OUTRANKED),
      heard: 'noted',
      atOnce: [],
      inAll: [A],
    },
    {
      name: 'a post of a server that was found missing counts as a first one',
      before: (rig) => rig.post().findNobody(),
      heard: 'urgent',
      atOnce: [A],
      inAll: [],
    },
  ];
  for (const { name, before, heard, atOnce, inAll } of table) {
    const rig = new Rig();
    before(rig);
    t.equal(rig.receive(), heard, name);
    t.same(rig.record('urgent'), atOnce, name);
    t.same(rig.record('all'), inAll, name);
    t.same(rig.record('all'), [], `${name}: only once`);
  }
});

t.test('a server is due once it was quiet for the whole time', async (t) => {
  const table: { name: string; steps(rig: Rig): Rig; due: string[] }[] = [
    { name: 'quiet for the whole time', steps: (rig) => rig.read({}).pass(16_000), due: [`${A} 1`] },
    { name: 'not one tick earlier', steps: (rig) => rig.read({}).pass(15_750), due: [] },
    {
      name: 'a post received here restarts the silence, recorded or not',
      steps: (rig) => rig.read({}).pass(15_000).post().pass(15_750),
      due: [],
    },
    {
      name: 'a late record of a post does not restart it',
      steps: (rig) => rig.read({}).post().pass(4000).write({ lastRecord: 2 }).pass(12_000),
      due: [`${A} 2`],
    },
    {
      name: 'reading a record that was made here does not restart it',
      steps: (rig) => rig.post().write({ lastRecord: 7 }).pass(4000).read({ lastRecord: 7 }).pass(12_000),
      due: [`${A} 7`],
    },
    {
      name: 'a record of another instance restarts it, however old the posts received here',
      steps: (rig) => rig.post().write().pass(15_000).read({ lastRecord: 2 }).pass(15_750),
      due: [],
    },
    {
      name: 'a server that returned under a new epoch restarts it',
      steps: (rig) => rig.read({}).pass(15_000).read({ epoch: 2 }).pass(15_750),
      due: [],
    },
    {
      name: 'a failed read restarts all silences',
      steps: (rig) => rig.read({}).pass(15_000).readFails().pass(15_750),
      due: [],
    },
    {
      name: 'a server with a session is never due',
      steps: (rig) => rig.post().write(OUTRANKED).pass(60_000),
      due: [],
    },
    {
      name: 'a server that is no longer running by its posts is never due',
      steps: (rig) => rig.read({}).pass(10_000).read().pass(10_000),
      due: [],
    },
    {
      name: 'a server is not due again after a failed attempt until the next read',
      steps: (rig) => rig.read({}).pass(16_000).judgeInVain().pass(250),
      due: [],
    },
    {
      name: 'a server is due again if the next read shows the same record (its row was locked)',
      steps: (rig) => rig.read({}).pass(16_000).judgeInVain().read({}).pass(250),
      due: [`${A} 1`],
    },
  ];
  for (const { name, steps, due } of table) t.same(steps(new Rig()).due(), due, name);
});

t.test('a stall counts as no silence, and posts that waited during it are as old as the stall', async (t) => {
  const rig = new Rig();
  rig.read({});
  rig.now += 60_000;
  t.same(rig.due(), [], 'no healthy tick, so no silence');
  rig.heartbeats.receive(A, 0);
  t.same(rig.record('all'), [], 'too old to prove anything');
  rig.heartbeats.receive(A, rig.now - 2000);
  matchLists(t, rig.heartbeats.take('all', rig.now), [{ serverUuid: A, heardAt: rig.now - 2000 }]);
});

t.test('a post that comes during the decision about its server is urgent', async (t) => {
  const rig = new Rig();
  rig.read({});
  rig.pass(16_000);
  const due = rig.heartbeats.due();
  rig.receive();
  rig.heartbeats.statusTried(due, new Set([A]));
  t.same(rig.record('urgent'), [A]);
});

t.test('a post that comes while an earlier one is being recorded is recorded as well', async (t) => {
  const rig = new Rig();
  rig.read({});
  rig.receive();
  const batch = rig.heartbeats.take('all', rig.now);
  rig.pass(250);
  rig.receive();
  rig.heartbeats.recorded(batch, [{ serverUuid: A, epoch: 1, lastRecord: 2, cameBack: false }]);
  t.same(rig.record('all'), [A]);
});

t.test('a post that could not be recorded is kept until it is too old', async (t) => {
  const rig = new Rig();
  rig.receive();
  rig.heartbeats.take('urgent', rig.now);
  rig.pass(11_000);
  matchLists(t, rig.heartbeats.take('urgent', rig.now), [{ heardAt: rig.now - 11_000 }]);
  rig.pass(250);
  t.same(rig.heartbeats.take('urgent', rig.now), []);
  t.equal(rig.heartbeats.size, 0);
});

t.test('random uuids fill only the room for new servers, and known servers are still heard', async (t) => {
  const rig = new Rig();
  rig.read({});
  const outcomes = Array.from({ length: 10 }, (_, n) => rig.receive(`unknown-${n}`));
  t.same(outcomes.slice(0, 4), ['urgent', 'urgent', 'urgent', 'dropped']);
  t.equal(rig.receive(), 'noted');
  t.equal(rig.heartbeats.size, 4);
  rig.heartbeats.recorded(rig.heartbeats.take('urgent', rig.now), []);
  t.equal(rig.heartbeats.size, 1, 'none of them exists');
  t.equal(rig.receive('unknown-9'), 'urgent', 'there is room again');
  for (let n = 0; n < 9; n += 1) {
    rig.receive(`server-${n}`);
    rig.record('urgent');
  }
  t.equal(rig.heartbeats.size, LIMITS.maxServers);
  t.equal(rig.receive('one-too-many'), 'dropped');
});

t.test('a server that is neither heard nor read any more is forgotten', async (t) => {
  const rig = new Rig();
  rig.receive();
  rig.write(OUTRANKED);
  t.equal(rig.heartbeats.heard, 1);
  rig.pass(11_000);
  t.equal(rig.heartbeats.heard, 0);
  rig.read({ serverUuid: 'server-b' });
  t.equal(rig.heartbeats.size, 1);
});
