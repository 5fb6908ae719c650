/** How one instance answers hellos and inventories, on a database that answers as the test says. */
import t from 'tap';
import { Authority } from '../../../../lib/control/roster/accept/authority.ts';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import type { SessionLosses } from '../../../../lib/control/roster/sessions/session-losses.ts';
import { runTopic } from '../../../../lib/control/run-topic.ts';
import type { Bus, BusMessage } from '../../../../lib/platform/bus/bus.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

interface AcceptedRow {
  epoch: number;
  previous_run: string | null;
  is_alternating: boolean;
}

const fresh: AcceptedRow = { epoch: 1, previous_run: null, is_alternating: false };
/** A row that another incarnation holds under the run `other`. */
const held = {
  ...{ server_uuid: 'a', cnapi_uuid: 'u', run: 'other', epoch: 4, status: 'running', reason: 'connected' },
  ...{ since: new Date(0), incarnation: 'twin', conn: 1, journal_id: 'k', inventory_epoch: 0, returns_in_ms: 0 },
};

function setUp() {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const logged: Record<string, unknown>[] = [];
  const published: { topic: string; message: BusMessage }[] = [];
  const world = {
    run: 'mine',
    /** Answers to accept statements; without one the row rejects the hello. */
    accepts: [] as (AcceptedRow | undefined)[],
    accepted: 0,
    /** The incarnation that each accept statement replaces. */
    replaced: [] as unknown[],
    beforeAccepted: Promise.resolve(),
    row: undefined as typeof held | undefined,
    isOtherLive: true,
    isTwinAlive: false,
    probes: [] as object[],
    /** The runs that each statement about inventories asks for. */
    inventories: [] as string[][],
    runOfRow: 'mine',
    superseded: [] as string[],
    forgotten: [] as string[],
  };
  const answer = async (text: string, values: readonly unknown[]): Promise<object[]> => {
    if (text.includes('insert into cnapi_roster_authority')) {
      world.accepted += 1;
      world.replaced.push(values[7]);
      await world.beforeAccepted;
      const row = world.accepts.shift();
      return row === undefined ? [] : [{ server_uuid: (values[0] as string[])[0], ...row }];
    }
    if (text.includes('set inventory_epoch')) {
      const [servers, runs] = values as [string[], string[]];
      world.inventories.push(runs);
      await world.beforeAccepted;
      return servers.flatMap((server_uuid, n) =>
        runs[n] === world.runOfRow ? [{ server_uuid, is_applied: true }] : [],
      );
    }
    if (text.includes('from cnapi_instances')) return world.isOtherLive ? [{}] : [];
    return world.row === undefined ? [] : [world.row];
  };
  const query = async <Row>(text: string, values: readonly unknown[] = []) => {
    const rows = (await answer(text, values)) as Row[];
    return { rows, rowCount: rows.length };
  };
  const database: Queryable = { query };
  const authority = new Authority({
    database,
    arrivalDatabase: database,
    sessions,
    sessionLosses: {
      forget: (serverUuid: string) => world.forgotten.push(serverUuid),
      supersede: (session: Session, reason: string) => {
        sessions.end(session);
        world.superseded.push(reason);
      },
    } as unknown as SessionLosses,
    probes: {
      isAlive: async (serverUuid, target) => {
        world.probes.push({ serverUuid, run: target.run, epoch: target.epoch });
        return world.isTwinAlive;
      },
    },
    bus: { publish: (topic: string, message: BusMessage) => published.push({ topic, message }) } as unknown as Bus,
    writer: () => ({ cnapiUuid: 'me', run: world.run }),
    clock,
    log: recordingLogger(logged),
  });
  const hello = {
    ...{ type: 'hello' as const, version: 1, capabilities: ['task:nop'], serverUuid: 'a', incarnation: 'i', conn: 1 },
    ...{ journalId: 'j', epoch: 0, bootId: 'b', agentVersion: '1', sysinfoDigest: 'none' },
  };
  /** Statements of one kind are 20 ms apart, so a second one needs another step of the clock. */
  const settled = async <Answer>(asked: Promise<Answer>): Promise<Answer> => {
    for (let step = 0; step < 10; step += 1) await clock.advance(20);
    return asked;
  };
  const accept = async (isOpen = () => true) => {
    return settled(authority.accept({ hello, socket: idleSocket(), isOpen }));
  };
  const connect = async (epoch = 1): Promise<Session> => {
    world.accepts.push({ ...fresh, epoch });
    const acceptance = await accept();
    if (acceptance.kind !== 'accepted') throw new Error(`not accepted: ${acceptance.kind}`);
    return acceptance.session;
  };
  const confirm = async (session: Session) => {
    return settled(authority.confirmInventory(session));
  };
  return { accept, authority, clock, confirm, connect, logged, published, sessions, world };
}

t.test('a hello that its row allows becomes a session', async (t) => {
  const { accept, clock, published, sessions, world } = setUp();
  world.accepts = [{ ...fresh, epoch: 5 }];
  const acceptance = await accept();
  t.match(acceptance, { kind: 'accepted', session: { serverUuid: 'a', epoch: 5, run: 'mine', journalId: 'j' } });
  const session = sessions.get('a');
  t.same(session?.capabilities, new Set(['task:nop']));
  t.ok((session?.heardAt ?? 0) > 0 && (session?.heardAt ?? 0) <= clock.now());
  t.notOk(sessions.isPending('a'));
  t.same([world.forgotten, world.superseded, published], [['a'], [], []]);
  t.equal(world.accepted, 1);
});

t.test('the previous instance is told, and an earlier session here is replaced', async (t) => {
  const { accept, connect, published, sessions, world } = setUp();
  await connect(1);
  world.accepts = [{ ...fresh, epoch: 2, previous_run: 'mine' }];
  await accept();
  t.same(published, [], 'this instance needs no message');
  t.same(world.superseded, ['replaced by epoch 2']);
  world.accepts = [{ ...fresh, epoch: 4, previous_run: 'other' }];
  await accept();
  t.same(published, [{ topic: runTopic('other'), message: { kind: 'roster', server_uuid: 'a', epoch: 4 } }]);
  t.equal(sessions.get('a')?.epoch, 4);
});

t.test('an accept that was overtaken by a later one is refused', async (t) => {
  const { accept, connect, sessions, world } = setUp();
  await connect(5);
  world.accepts = [{ ...fresh, epoch: 4 }];
  t.match(await accept(), { kind: 'refused', refusal: { code: 'superseded' } });
  t.equal(sessions.get('a')?.epoch, 5);
});

t.test('a connection that closes while it waits or while its row is written becomes no session', async (t) => {
  const { accept, clock, sessions, world } = setUp();
  t.match(await accept(() => false), { kind: 'gone' });
  t.equal(world.accepted, 0);
  world.accepts = [fresh];
  world.beforeAccepted = clock.sleep(50);
  let isOpen = true;
  clock.after(20, () => {
    isOpen = false;
  });
  t.match(await accept(() => isOpen), { kind: 'gone' });
  t.equal(world.accepted, 1);
  t.equal(sessions.size, 0);
});

t.test('a server is pending while its row is written, and the oldest statement is timed', async (t) => {
  const { accept, authority, clock, sessions, world } = setUp();
  t.equal(authority.statementMs, 0);
  world.accepts = [fresh];
  world.beforeAccepted = clock.sleep(90);
  const seen: unknown[] = [];
  clock.after(40, () => seen.push(sessions.isPending('a'), authority.statementMs));
  await accept();
  t.same(seen, [true, 40]);
  t.equal(authority.statementMs, 0);
});

t.test('a hello that its row rejects is refused for the reason that the row gives', async (t) => {
  const { accept, authority, logged, world } = setUp();
  world.row = { ...held, incarnation: 'i', conn: 7 };
  t.match(await accept(), { kind: 'refused', refusal: { code: 'superseded', conn: 7 } });
  t.equal(authority.returnsRefused, 0);
  world.row = { ...held, status: 'unknown', returns_in_ms: 900 };
  t.match(await accept(), { kind: 'refused', refusal: { code: 'returns-too-often', retryAfterMs: 900 } });
  t.equal(authority.returnsRefused, 1);
  t.same(
    logged.map(({ code }) => code),
    ['superseded', 'returns-too-often'],
  );
});

t.test('a row that keeps changing is tried five times', async (t) => {
  const { accept, world } = setUp();
  t.match(await accept(), { kind: 'refused', refusal: { code: 'superseded', retryAfterMs: 1_000 } });
  t.equal(world.accepted, 5);
});

t.test('another incarnation that answers keeps its row', async (t) => {
  const { accept, world } = setUp();
  world.row = held;
  world.isTwinAlive = true;
  t.match(await accept(), { kind: 'refused', refusal: { code: 'incarnation-alive' } });
  t.same(world.probes, [{ serverUuid: 'a', run: 'other', epoch: 4 }]);
  t.equal(world.accepted, 1);
});

t.test('another incarnation that does not answer is replaced', async (t) => {
  const { accept, world } = setUp();
  world.row = held;
  world.accepts = [undefined, { ...fresh, epoch: 5 }];
  t.match(await accept(), { kind: 'accepted', session: { epoch: 5 } });
  t.same(world.replaced, [null, 'twin']);
});

t.test('an incarnation of a dead run is not probed, one of this run always is', async (t) => {
  const { accept, world } = setUp();
  world.isOtherLive = false;
  world.row = held;
  world.accepts = [undefined, { ...fresh, epoch: 5 }];
  await accept();
  t.same(world.probes, []);
  world.row = { ...held, run: 'mine' };
  world.accepts = [undefined, { ...fresh, epoch: 6 }];
  await accept();
  t.equal(world.probes.length, 1);
});

t.test('two machines that take turns with one uuid are counted and named', async (t) => {
  const { accept, authority, logged, world } = setUp();
  world.accepts = [{ ...fresh, is_alternating: true }];
  await accept();
  t.equal(authority.alternations, 1);
  t.ok(logged.some(({ level, server_uuid }) => level === 'error' && server_uuid === 'a'));
});

t.test('an inventory is recorded with one statement while its row is the session’s', async (t) => {
  const { confirm, connect, world } = setUp();
  const session = await connect();
  t.ok(await confirm(session));
  t.ok(session.isInventoried);
  t.same([world.inventories, world.superseded], [[['mine']], []]);
});

t.test('an inventory whose row has moved to the new run of this instance is recorded under it', async (t) => {
  const { confirm, connect, world } = setUp();
  const session = await connect();
  Object.assign(world, { run: 'next', runOfRow: 'next' });
  t.ok(await confirm(session));
  t.same(world.inventories, [['mine'], ['next']]);
});

t.test('a session whose row belongs to another is ended at its inventory', async (t) => {
  const { confirm, connect, sessions, world } = setUp();
  const session = await connect();
  world.runOfRow = 'other';
  t.notOk(await confirm(session));
  t.notOk(session.isInventoried);
  t.same([world.superseded.length, world.inventories.length, sessions.size], [1, 1, 0]);
});

t.test('a session that ends while its inventory is recorded stays ended', async (t) => {
  const { clock, confirm, connect, sessions, world } = setUp();
  const session = await connect();
  world.beforeAccepted = clock.sleep(50);
  clock.after(20, () => sessions.end(session));
  t.notOk(await confirm(session));
  t.notOk(session.isInventoried);
  t.same(world.superseded, []);
});
