/**
 * What an instance sends to its agents about push jobs, with a database that answers as a test
 * says.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  AgentMessenger,
  type AgentMessengerDeps,
  type PushSession,
} from '../../../../lib/control/push/messenger/agent-messenger.ts';
import type { PushOrder } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY } from '../../../../lib/protocol/push.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';

const job = randomUUID();
const servers = [randomUUID(), randomUUID(), randomUUID()].sort();

interface World {
  voters: { jobId: string; serverUuid: string }[];
  orders: PushOrder[];
  reads: number;
  /** How many of the reads read the list of orders. */
  orderReads: number;
  /** How many times it was asked whether agents have not read what they were sent. */
  roomAsked: number;
  sent: { serverUuid: string; type: string }[];
  voted: string[];
  isHalfFull: boolean;
  /** Servers whose agents have not read what they were sent. */
  backedUp: Set<string>;
  capabilities: Set<string>;
  sessions: Map<string, PushSession>;
}

/**
 * Waits until the orders that there are have been carried out: those of one job are read one after
 * the other, so the former ones are sent when the list is read again.
 */
async function carriedOut(messenger: AgentMessenger, world: World): Promise<void> {
  for (let times = 0; times < 2; times += 1) {
    const before = world.orderReads;
    messenger.sendOrdersFor([job]);
    await until(() => world.orderReads > before);
  }
}

function start(t: Test, fields: Partial<World> = {}): { messenger: AgentMessenger; world: World } {
  const world: World = {
    voters: servers.map((serverUuid) => ({ jobId: job, serverUuid })),
    orders: [],
    reads: 0,
    orderReads: 0,
    roomAsked: 0,
    sent: [],
    voted: [],
    isHalfFull: false,
    backedUp: new Set(),
    capabilities: new Set([PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY]),
    sessions: new Map(),
    ...fields,
  };
  const query = async (text: string, values: unknown[] = []) => {
    if (text.includes('cnapi_store_push_votes')) {
      const [jobs, of] = values as [string[], string[]];
      world.voted.push(...of);
      return { rows: of.map((server_uuid, at) => ({ job: jobs[at], server_uuid, what: 'stored' })), rowCount: 0 };
    }
    world.reads += 1;
    if (text.includes('as changes')) return { rows: [], rowCount: 0 };
    if (text.includes('encode(file')) {
      const [jobs = []] = values as [string[]];
      return { rows: jobs.map((id) => ({ id, command: 'true', options: {}, file: null })), rowCount: 1 };
    }
    if (text.includes("n.state = 'new'")) {
      const rows = world.voters;
      world.voters = [];
      return { rows, rowCount: rows.length };
    }
    world.orderReads += 1;
    const rows = world.orders;
    world.orders = [];
    return { rows, rowCount: rows.length };
  };
  const deps: AgentMessengerDeps = {
    database: { query } as unknown as Queryable,
    bus: createMemoryBus({ clock: systemClock, log: silentLogger, random: systemRandom, hub: new MemoryHub() }),
    clock: systemClock,
    log: silentLogger,
    config: { slowPollMs: 60_000, slowPollNoBusMs: 60_000 },
    session(serverUuid) {
      const session: PushSession = world.sessions.get(serverUuid) ?? {
        serverUuid,
        incarnation: serverUuid,
        capabilities: world.capabilities,
        socket: {
          get isBackedUp() {
            return world.backedUp.has(serverUuid);
          },
          send: ({ type }) => world.sent.push({ serverUuid, type }) > 0,
        },
      };
      world.sessions.set(serverUuid, session);
      return session;
    },
    unsent: {
      get isHalfFull() {
        world.roomAsked += 1;
        return world.isHalfFull;
      },
    },
  };
  const messenger = new AgentMessenger(deps);
  t.teardown(() => messenger.stop());
  return { messenger, world };
}

t.test('each agent of a job is asked once for each time that somebody says so', async (t) => {
  const { messenger, world } = start(t);
  messenger.sendOrdersFor([job]);
  await until(() => world.sent.length === 3);
  t.same(
    world.sent,
    servers.map((serverUuid) => ({ serverUuid, type: 'push_prepare' })),
  );
});

t.test('jobs that begin together are read together', async (t) => {
  const jobs = [randomUUID(), randomUUID(), randomUUID()];
  const voters = jobs.map((one, at) => ({ jobId: one, serverUuid: servers[at] ?? '' }));
  const { messenger, world } = start(t, { voters });
  for (const one of jobs) messenger.sendOrdersFor([one]);
  await until(() => world.sent.length === 3);
  t.equal(world.reads, 4, 'whose limits were changed, who is told something, who is asked, and what');
});

t.test('nobody is asked while agents have not read what they were sent', async (t) => {
  const { messenger, world } = start(t, { isHalfFull: true });
  messenger.sendOrdersFor([job]);
  await until(() => world.roomAsked > 0);
  messenger.sessionBegan(randomUUID());
  t.equal(world.sent.length, 0);
  world.isHalfFull = false;
  await until(() => world.sent.length === 3);
});

t.test('agents are told to forget a job while nobody is asked', async (t) => {
  const [serverUuid = ''] = servers;
  const { messenger, world } = start(t, { isHalfFull: true });
  // More jobs than the messenger asks for at the same time.
  for (let jobs = 1; jobs <= 8; jobs += 1) {
    const other = randomUUID();
    world.voters = [{ jobId: other, serverUuid }];
    const asked = world.roomAsked;
    messenger.sendOrdersFor([other]);
    if (jobs <= 4) await until(() => world.roomAsked > asked && world.voters.length === 0);
  }
  world.orders = [{ jobId: job, serverUuid, what: 'abort', timeoutMs: null, change: null }];
  messenger.sendOrdersFor([job]);
  await until(() => world.sent.length > 0);
  t.same(world.sent, [{ serverUuid, type: 'push_abort' }]);
});

t.test('an agent that has not read the last question is left out, until it has', async (t) => {
  const [slow = '', ...others] = servers;
  const { messenger, world } = start(t, { backedUp: new Set([slow]) });
  const { voters } = world;
  messenger.sendOrdersFor([job]);
  await until(() => world.sent.length === others.length);
  t.same(
    world.sent.map(({ serverUuid }) => serverUuid),
    others,
  );
  world.backedUp.clear();
  world.voters = voters.filter(({ serverUuid }) => serverUuid === slow);
  messenger.sendOrdersFor([job]);
  await until(() => world.sent.length === 3);
  t.equal(world.sent.at(-1)?.serverUuid, slow);
});

t.test('a messenger that stops waits for no agent', async (t) => {
  const { messenger, world } = start(t, { isHalfFull: true });
  messenger.sendOrdersFor([job]);
  await until(() => world.roomAsked > 0);
  await messenger.stop();
  t.pass();
});

t.test('an agent that knows no push jobs votes against the job, and is told nothing', async (t) => {
  const { messenger, world } = start(t, { capabilities: new Set() });
  messenger.sendOrdersFor([job]);
  await until(() => world.voted.length === 3);
  t.same(world.sent, []);
});

t.test('an agent is told another timeout once in each session, and each further one', async (t) => {
  const [serverUuid = ''] = servers;
  const { messenger, world } = start(t, { voters: [] });
  const told = async (timeoutMs: number, change = timeoutMs) => {
    world.orders = [{ jobId: job, serverUuid, what: 'timeout', timeoutMs, change }];
    await carriedOut(messenger, world);
    return world.sent.splice(0);
  };
  const frame = { serverUuid, type: 'push_timeout' };
  t.same(await told(1_000), [frame]);
  t.same(await told(1_000), []);
  t.same(await told(2_000), [frame]);
  t.same(await told(1_000), [], 'an earlier change, which was read before the later one');
  t.same(await told(2_000, 4_000), [], 'changed to another one and back');
  t.same(await told(3_000), [], 'the one between them, which was read before');
  world.sessions.clear();
  t.same(await told(2_000), [frame], 'it has connected again');
});

t.test('an agent that does not know other timeouts is not told', async (t) => {
  const orders = servers.map((serverUuid) => ({
    jobId: job,
    serverUuid,
    what: 'timeout' as const,
    timeoutMs: 1_000,
    change: 1,
  }));
  const { messenger, world } = start(t, { voters: [], orders, capabilities: new Set([PUSH_CAPABILITY]) });
  await carriedOut(messenger, world);
  t.same(world.sent, []);
});
