/**
 * A page of one thousand servers out of ten thousand with real sysinfo, compared with restify
 * sending the same objects.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { serverUuidOf } from '../../../lib/agent/simulated/fleet.ts';
import { simulatedSysinfo } from '../../../lib/agent/simulated/simulated-sysinfo.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { profileCpu } from '../profile.ts';
import { type Summary, summarize } from '../statistics.ts';
import { number } from '../table.ts';
import type { Instance } from '../zone.ts';

const FULL = { servers: 10_000, samples: 200 };
const QUICK = { servers: 1_200, samples: 20 };
const PAGE = 1_000;
const POSTS_AT_ONCE = 16;
const WARM_UP = 20;

export const listServers: Figure = {
  name: 'list-servers',
  says: 'GET /servers?limit=1000 with 10,000 servers that have real sysinfo',
  seconds: 75,
  measure,
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const { servers, samples } = context.isQuick ? QUICK : FULL;
  await using zone = await context.startZone({ instances: 1 });
  await using floor = await context.startHelper({ name: 'floor-list', file: 'tools/bench/programs/noop-server.ts' });
  using caller = new BenchCaller();
  const instance = zone.instances[0] as Instance;
  const { url } = instance;
  await tellSysinfo(context, { caller, url, servers });
  await zone.sql('analyze');
  const page = `${url}/servers?limit=${PAGE}`;
  const { text } = expectStatus(await caller.get(page), 200);
  const objects = `${(await floor.ask<{ url: string }>('listen')).url}/objects`;
  await serve(text);
  if ((await caller.get(objects)).text !== text) throw new Error('the floor does not send the same');
  const [own, bare] = await inTurn(caller, [page, objects], samples);
  if (context.profiles !== undefined) {
    const work = () => inTurn(caller, [page, page], samples);
    await profileCpu(instance.helper, { folder: context.profiles, what: 'list', work });
  }
  return [
    {
      what: `GET /servers?limit=${PAGE} of ${number(servers)} with real sysinfo, p50`,
      value: own.median,
      unit: 'ms',
      floor: { of: 'restify sending the same objects', value: bare.median },
      limit: { on: 'ratio', atMost: 3 },
      notes: [
        `${number(text.length / 1024)} KB; p10 ${number(own.p10)}, p90 ${number(own.p90)}, p99 ${number(own.p99)} ms; floor p10 ${number(bare.p10)}, p90 ${number(bare.p90)} ms`,
      ],
    },
  ];

  async function serve(json: string): Promise<void> {
    const file = path.join(context.directory, 'objects.json');
    writeFileSync(file, json);
    await floor.ask('serve', { file });
  }
}

/** Posts the sysinfo as legacy agents do. */
async function tellSysinfo(
  { signal }: BenchContext,
  { caller, url, servers }: { caller: BenchCaller; url: string; servers: number },
): Promise<void> {
  let next = 0;
  const lane = async () => {
    for (let number = next++; number < servers && !signal.aborted; number = next++) {
      const serverUuid = serverUuidOf('list-servers', number);
      const sysinfo = simulatedSysinfo({ serverUuid, number, agentVersion: 'bench', sysinfoSize: 'real', bootedAt: 0 });
      expectStatus(await caller.post(`${url}/servers/${serverUuid}/sysinfo`, { sysinfo }), 200);
    }
  };
  await Promise.all(Array.from({ length: POSTS_AT_ONCE }, lane));
}

/** Alternates between the two, so that other load on the machine affects both. */
async function inTurn(caller: BenchCaller, urls: [string, string], samples: number): Promise<[Summary, Summary]> {
  const times: [number[], number[]] = [[], []];
  for (let each = -WARM_UP; each < samples; each++) {
    for (const which of [0, 1] as const) {
      const { ms } = expectStatus(await caller.get(urls[which]), 200);
      if (each >= 0) times[which].push(ms);
    }
  }
  return [summarize(times[0]), summarize(times[1])];
}
