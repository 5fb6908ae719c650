/**
 * How long a revoked token is still accepted at three instances that use it continuously: requests
 * one after the other, an event stream, an agent's link. Measured from the answer of the revocation
 * at one instance to the start of the last accepted request, and to the end of the stream and of
 * the link.
 */
import http from 'node:http';
import { WebSocket } from 'ws';
import { formatToken, hashSecret } from '../../../lib/control/access/token.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { type Summary, summarize } from '../statistics.ts';
import { number } from '../table.ts';
import type { Zone } from '../zone.ts';

const FULL_ROUNDS = 30;
const QUICK_ROUNDS = 2;
const SETTLE_MS = 300;
/**
 * The instances read the tokens every 400 ms; the revocation happens at a random time between two
 * reads.
 */
const LOOK_MS = 400;
const WITHIN_MS = 1_000;
/** Much longer than the promised time. */
const WATCHED_MS = 2_500;

export const revokedToken: Figure = {
  name: 'revoked-token',
  says: 'how long three instances accept a token after it was revoked at one of them',
  seconds: 90,
  measure,
};

interface Round {
  requests: number[];
  streams: number[];
  links: number[];
}

async function measure({ isQuick, startZone }: BenchContext): Promise<readonly Result[]> {
  const config = { access: 'tokens', requestsPerSecond: 0, connectionsPerSource: 0, failedAuthenticationsPerMinute: 0 };
  await using zone = await startZone({ config });
  using admin = new BenchCaller({ authorization: `Bearer ${await firstToken(zone)}` });
  const rounds: Round[] = [];
  while (rounds.length < (isQuick ? QUICK_ROUNDS : FULL_ROUNDS))
    rounds.push(await revokeOne(zone, admin, rounds.length));
  return [
    row('last request let in', summarize(rounds.flatMap(({ requests }) => requests))),
    row('event stream cut', summarize(rounds.flatMap(({ streams }) => streams))),
    row('agent’s link cut', summarize(rounds.flatMap(({ links }) => links))),
  ];
}

function row(what: string, { median, p90, max, samples }: Summary): Result {
  return {
    what: `revoked token: ${what}, longest`,
    value: max,
    unit: 'ms',
    limit: { on: 'value', atMost: WITHIN_MS },
    notes: [
      `after the answer of the revocation; p50 ${number(median)}, p90 ${number(p90)} ms; ${samples} samples, three instances`,
    ],
  };
}

/** The token that creates the other tokens. */
async function firstToken(zone: Zone): Promise<string> {
  const [uuid, secret] = [systemRandom.uuid(), systemRandom.uuid().replaceAll('-', '').padEnd(43, 'x')];
  await zone.sql(
    `insert into cnapi_tokens (uuid, name, role, secret_hash, created_by) values ($1, 'bench', 'admin', $2, 'bench')`,
    [uuid, hashSecret(secret)],
  );
  return formatToken({ uuid, secret });
}

async function revokeOne(zone: Zone, admin: BenchCaller, each: number): Promise<Round> {
  const urls = zone.instances.map(({ url }) => url);
  const [first = ''] = urls;
  const create = async (role: string) => {
    const made = expectStatus(await admin.post(`${first}/tokens`, { name: `${role}-${each}`, role }), 201);
    return JSON.parse(made.text) as { uuid: string; token: string };
  };
  const [reader, agent] = [await create('reader'), await create('agent')];
  const requests = urls.map((url) => lastLetIn(url, reader.token));
  const streams = urls.map((url) => streamEnd(url, reader.token));
  const links = urls.map((url) => linkEnd(url, agent.token));
  await clock.sleep(SETTLE_MS + systemRandom.fraction() * LOOK_MS);
  const revoke = async ({ uuid }: { uuid: string }) => {
    expectStatus(await admin.delete(`${first}/tokens/${uuid}`), 204);
    return clock.now();
  };
  const [readerEnded, agentEnded] = await Promise.all([revoke(reader), revoke(agent)]);
  const since = async (ends: Promise<number>[], from: number) =>
    (await Promise.all(ends)).map((end) => Math.max(0, end - from));
  return {
    requests: await since(requests, readerEnded),
    streams: await since(streams, readerEnded),
    links: await since(links, agentEnded),
  };
}

async function lastLetIn(url: string, token: string): Promise<number> {
  using caller = new BenchCaller({ authorization: `Bearer ${token}` });
  let last = clock.now();
  for (const deadline = last + SETTLE_MS + LOOK_MS + WATCHED_MS; clock.now() < deadline; ) {
    const at = clock.now();
    const { status } = await caller.get(`${url}/info`);
    if (status === 200) last = at;
  }
  return last;
}

function streamEnd(url: string, token: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}` };
    const request = http.get(`${url}/events`, { headers, agent: false }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`GET /events: ${response.statusCode}`));
      response.resume();
      response.once('close', () => resolve(clock.now()));
    });
    request.once('error', reject);
  });
}

/** The client sends nothing; an instance waits longer than this measurement for the greeting. */
function linkEnd(url: string, token: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const address = `${url.replace('http', 'ws')}/agents/${systemRandom.uuid()}/link`;
    const socket = new WebSocket(address, { headers: { authorization: `Bearer ${token}` } });
    let isOpen = false;
    socket.once('open', () => {
      isOpen = true;
    });
    socket.on('error', (error) => isOpen || reject(error));
    socket.once('close', () => resolve(clock.now()));
  });
}
