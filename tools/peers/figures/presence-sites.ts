/**
 * The servers for presence: cnapi, socket.io with its Redis adapter, mosquitto, nats-server. Each
 * is started again for each turn, with settings that a user would choose and one heartbeat per
 * second. These settings determine how soon a silent client is detected.
 */
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../../bench/caller.ts';
import { cpuMsOf } from '../../bench/cpu.ts';
import type { BenchContext } from '../../bench/figure.ts';
import type { Helper } from '../../bench/helper.ts';
import { machineMs } from '../../bench/machine-clock.ts';
import type { ConnectOrder as AgentsOrder } from '../../bench/programs/agents.ts';
import { freePort, isListening } from '../../start/ports.ts';
import { findProgram, whyNoProgram } from '../find-program.ts';
import type { Beats, Connected } from '../programs/clients.ts';
import { storesCpuMs } from '../stores.ts';
import { OWN } from './own-tasks.ts';

/** When to look for the loss of clients: time until the first look, and period. */
export interface Look {
  waitMs: number;
  everyMs: number;
}

/** A process that holds clients. */
export interface Crowd {
  helper: Helper;
  /**
   * Connects clients: all to the first server (`first`), or spread over the servers. Resolves when
   * all are present.
   */
  connect(order: { clients: number; perSecond: number; where: 'spread' | 'first' }): Promise<Connected>;
  beats(): Promise<Beats>;
}

export interface Site {
  /** CPU time so far, in ms: of the servers, and of the stores that they use. */
  cpuMs(): { servers: number; stores: number };
  startCrowd(name: string): Promise<Crowd>;
  /**
   * Returns when each client was reported as gone, on the machine's clock, read at another server
   * than the one it was connected to.
   */
  goneAt(ids: readonly string[], look: Look): Promise<number[]>;
  stop(): Promise<void>;
}

export interface SiteMaker {
  name: string;
  /** Returns undefined when it can take part. */
  whyAbsent(context: BenchContext): string | undefined;
  start(context: BenchContext): Promise<Site>;
}

const UP_WITHIN_MS = 10_000;
const GONE_WITHIN_MS = 20_000;
const LOOK_MS = 20;

export const ownSite: SiteMaker = { name: OWN, whyAbsent: () => undefined, start: startOwn };

export const peerSites: readonly SiteMaker[] = [
  {
    name: 'socket.io with Redis adapter',
    whyAbsent: ({ foundation }) =>
      foundation.redisUrl === undefined ? 'there is no Redis: on Debian, apt-get install redis-server' : undefined,
    start: startSocketIo,
  },
  { name: 'mosquitto', whyAbsent: () => whyNoProgram('mosquitto'), start: startMosquitto },
  { name: 'nats-server', whyAbsent: () => whyNoProgram('nats-server'), start: startNats },
];

async function startOwn(context: BenchContext): Promise<Site> {
  const zone = await context.startZone({ instances: 2 });
  const [held, read] = zone.instances.map(({ url }) => url);
  if (held === undefined || read === undefined) throw new Error('there are not two instances');
  const caller = new BenchCaller();
  const pids = zone.instances.map(({ helper }) => helper.program.pid);
  return {
    cpuMs: () => ({ servers: cpuMsOf(pids), stores: storesCpuMs(context) }),
    async startCrowd(name) {
      const helper = await context.startHelper({ name, file: 'tools/bench/programs/agents.ts' });
      const connect = (url: string, agents: number, perSecond: number, sendsSysinfo: boolean): Promise<string[]> => {
        const order: AgentsOrder = { url, agents, perSecond, sendsSysinfo };
        return helper.ask('connect', order);
      };
      return {
        helper,
        async connect({ clients, perSecond, where }) {
          // Clients whose loss will be measured must be known as servers.
          const isKnown = where === 'first';
          const ids = await connect(held, isKnown ? clients : Math.ceil(clients / 2), perSecond, isKnown);
          if (isKnown) await zone.untilKnown(clients);
          else ids.push(...(await connect(read, Math.floor(clients / 2), perSecond, false)));
          return { ids, times: await helper.ask<number[]>('arrivals') };
        },
        beats: () => helper.ask('beats'),
      };
    },
    async goneAt(ids, { waitMs, everyMs }) {
      await clock.sleep(waitMs, context.signal);
      return await Promise.all(
        ids.map(async (id) => {
          const isGone = async () => {
            const { status, text } = await caller.get(`${read}/servers/${id}`);
            return status === 200 && (JSON.parse(text) as { status: string }).status === 'unknown';
          };
          await until(isGone, { withinMs: GONE_WITHIN_MS, everyMs, what: `server ${id} to be unknown` });
          return machineMs();
        }),
      );
    },
    async stop() {
      caller.stop();
      await zone.stop();
    },
  };
}

async function startSocketIo(context: BenchContext): Promise<Site> {
  const { redisUrl } = context.foundation;
  const file = 'tools/peers/programs/socket-io-server.ts';
  const servers = await Promise.all([0, 1].map((each) => context.startHelper({ name: `socket-io-${each}`, file })));
  const urls = await Promise.all(
    servers.map(async (server) => (await server.ask<{ url: string }>('listen', { redisUrl })).url),
  );
  const pids = servers.map(({ program }) => program.pid);
  return {
    cpuMs: () => ({ servers: cpuMsOf(pids), stores: storesCpuMs(context) }),
    startCrowd: (name) => startCrowd(context, { name, program: 'socket-io-clients', urls }),
    goneAt: (ids) => goneAtObserver(servers[1] as Helper, ids),
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

function startMosquitto(context: BenchContext): Promise<Site> {
  return startBroker(context, {
    program: 'mosquitto',
    clients: 'mqtt-clients',
    scheme: 'mqtt',
    settings: (port) => `listener ${port} 127.0.0.1\nallow_anonymous true\npersistence false\n`,
  });
}

function startNats(context: BenchContext): Promise<Site> {
  const secret = systemRandom.uuid();
  return startBroker(context, {
    program: 'nats-server',
    clients: 'nats-clients',
    scheme: 'nats',
    observer: `sys:${secret}@`,
    settings: (port) => `
      listen: 127.0.0.1:${port}
      ping_interval: "1s"
      ping_max: 1
      accounts: {
        SYS: { users: [{ user: sys, password: "${secret}" }] }
        APP: { users: [{ user: app, password: "${secret}" }] }
      }
      system_account: SYS
      no_auth_user: app
    `,
  });
}

interface Broker {
  program: string;
  clients: string;
  scheme: string;
  /** Credentials in the observer's URL. */
  observer?: string;
  settings(port: number): string;
}

async function startBroker(
  context: BenchContext,
  { program, clients, scheme, observer = '', settings }: Broker,
): Promise<Site> {
  const port = await freePort(undefined);
  const config = path.join(context.directory, `${program}.conf`);
  writeFileSync(config, settings(port), { mode: 0o644 });
  chmodSync(context.directory, 0o711);
  const broker = context.startProgram({
    name: program,
    command: { file: findProgram(program) ?? program, args: ['-c', config] },
  });
  const isUp = async () => broker.isAlive && (await isListening(port));
  await until(isUp, { withinMs: UP_WITHIN_MS, everyMs: LOOK_MS, what: `${program} to listen` });
  const watch = await context.startHelper({
    name: `${clients}-observer`,
    file: `tools/peers/programs/${clients}.ts`,
  });
  await watch.ask('observe', { url: `${scheme}://${observer}127.0.0.1:${port}` });
  return {
    cpuMs: () => ({ servers: cpuMsOf([broker.pid]), stores: 0 }),
    startCrowd: (name) => startCrowd(context, { name, program: clients, urls: [`${scheme}://127.0.0.1:${port}`] }),
    goneAt: (ids) => goneAtObserver(watch, ids),
    async stop() {
      await watch.stop();
      await broker.kill();
    },
  };
}

async function startCrowd(
  { startHelper }: BenchContext,
  { name, program, urls }: { name: string; program: string; urls: readonly string[] },
): Promise<Crowd> {
  const helper = await startHelper({ name: `${name}-${program}`, file: `tools/peers/programs/${program}.ts` });
  return {
    helper,
    connect: ({ clients, perSecond, where }) =>
      helper.ask('connect', { urls: where === 'spread' ? urls : urls.slice(0, 1), clients, perSecond }),
    beats: () => helper.ask('beats'),
  };
}

/** The observer is notified and records the time itself, so it may be asked later. */
async function goneAtObserver(observer: Helper, ids: readonly string[]): Promise<number[]> {
  const noted = async () => {
    const gone = await observer.ask<Record<string, number>>('gone');
    return ids.flatMap((id) => gone[id] ?? []);
  };
  const isSo = async () => (await noted()).length === ids.length;
  await until(isSo, { withinMs: GONE_WITHIN_MS, everyMs: LOOK_MS, what: `${ids.length} clients to be gone` });
  return await noted();
}

async function until(
  isSo: () => Promise<boolean>,
  { withinMs, everyMs, what }: { withinMs: number; everyMs: number; what: string },
): Promise<void> {
  for (const deadline = clock.now() + withinMs; !(await isSo()); await clock.sleep(everyMs))
    if (clock.now() > deadline) throw new Error(`waited ${withinMs / 1000} s in vain for ${what}`);
}
