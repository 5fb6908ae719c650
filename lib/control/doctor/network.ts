/** Checks the DNS name of the instances, the port of this one, and the clocks of the others. */
import { createServer } from 'node:net';
import { resolveInstances } from '../../platform/dns/resolve.ts';
import { messageOf } from '../../platform/errors.ts';
import { targetOf } from '../../platform/http-client/connect.ts';
import { HttpClient } from '../../platform/http-client/http-client.ts';
import { HttpError } from '../../platform/http-client/http-error.ts';
import type { HttpAnswer } from '../../platform/http-client/pending-request.ts';
import { type Queryable, sqlStateOf } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Config } from '../config.ts';
import { type InstanceRow, readLive } from '../roster/membership/instance-store.ts';
import { serviceNameOf } from './files.ts';
import { type CheckInput, type Finding, findings } from './finding.ts';

const ANSWER_WITHIN_MS = 3000;
/** More than a second, because a Date header has whole seconds. */
const MUCH_SKEW_MS = 2500;
const MOST_INSTANCES = 20;
const MOST_CHARACTERS = 10_000;

/** A warning only, because clients that are given URLs need no name. */
export async function checkName({ database, config, dns: server, clock, random }: CheckInput): Promise<Finding[]> {
  const part = findings('dns');
  const name = serviceNameOf(config);
  const todo = `make the system resolve ${name} (delegate it to cnapi's name server). Agents that are started with --url do not need it`;
  try {
    const named = await resolveInstances({ ...config, clock, random, server, timeoutMs: ANSWER_WITHIN_MS });
    const live = await readLive(database).catch(() => []);
    const isNamed = ({ host, port }: { host: string; port: number }) =>
      named.some((address) => address.port === port && address.host === host);
    const lacking = live.filter((instance) => !instance.isDraining && !isNamed(instance));
    const gone = named.filter(
      (address) => !live.some(({ host, port }) => host === address.host && port === address.port),
    );
    const text = `${name} names ${named.length} instances; ${live.length} live`;
    if (lacking.length > 0)
      return [
        part.warn(`${text}, of which it lacks ${lacking.map(({ host, port }) => `${host}:${port}`).join(', ')}`, todo),
      ];
    if (gone.length > 0)
      return [
        part.warn(`${text}; no instance runs at ${gone.map(({ host, port }) => `${host}:${port}`).join(', ')}`, todo),
      ];
    return [part.ok(text)];
  } catch (error) {
    return [part.warn(messageOf(error), todo)];
  }
}

export async function checkPort({ database, config, clock }: CheckInput): Promise<Finding[]> {
  const part = findings('port');
  const { host, port } = config;
  const at = `${host}:${port}`;
  const failure = await new Promise<NodeJS.ErrnoException | undefined>((done) => {
    const server = createServer().once('error', done);
    server.listen({ host, port, backlog: 1 }, () => server.close(() => done(undefined)));
  });
  if (failure === undefined) return [part.ok(`${at} is free`)];
  if (failure.code === 'EADDRNOTAVAIL' || failure.code === 'ENOTFOUND')
    return [
      part.fail(
        `${host} is not an address of this machine`,
        'set host to one of its addresses; advertiseHost is the address for others',
      ),
    ];
  if (failure.code === 'EACCES')
    return [
      part.fail(`${at} may not be listened on by this user`, 'take a port above 1023, or give it CAP_NET_BIND_SERVICE'),
    ];
  if (failure.code !== 'EADDRINUSE') return [part.fail(`${at}: ${failure.message}`, 'correct host or port')];
  const answer = await ping(urlOf(config), clock).catch(() => undefined);
  if (answer?.isCnapi) return [await aboutHolder(database, config, at)];
  return [part.fail(`something else holds ${at}`, `end it (ss -ltnp shows who it is), or take another port`)];
}

/** A cnapi at this address is not necessarily the instance of this configuration. */
async function aboutHolder(database: Queryable, config: Config, at: string): Promise<Finding> {
  const part = findings('port');
  const { cnapiUuid, host, advertiseHost = host, port } = config;
  // Without the table this database has no live instance.
  const live = await readLive(database).catch((error) => (sqlStateOf(error) === '42P01' ? [] : undefined));
  if (live === undefined)
    return part.warn(`an instance answers at ${at}; which one cannot be read`, 'fix the database first');
  const onPort = live.filter((instance) => instance.port === port);
  const there = onPort.filter((instance) => instance.host === advertiseHost);
  const [other] = there;
  const isOwn = (instance: InstanceRow) => cnapiUuid === undefined || instance.cnapiUuid === cnapiUuid;
  // The row may still have the host with which the instance was started.
  if (there.some(isOwn) || (other === undefined && onPort.some(isOwn)))
    return part.ok(`this instance answers at ${at}`);
  return part.fail(
    `another instance ${other === undefined ? '' : `(${other.cnapiUuid}) `}holds ${at}: this one cannot start there`,
    'give each instance a port and a cnapiUuid of its own, or correct databaseUrl if it belongs to another zone than that instance',
  );
}

/** A clock difference is only a warning: it affects nothing but the times that people compare. */
export async function checkPeers({ database, clock }: CheckInput): Promise<Finding[]> {
  const part = findings('instances');
  const all = await readLive(database).catch(() => []);
  const live = all.slice(0, MOST_INSTANCES);
  const each = live.map(async ({ url }): Promise<Finding> => {
    const answer = await ping(url, clock).catch(reasonOf);
    if (typeof answer === 'string')
      return part.warn(`${url} does not answer: ${answer}`, 'see that it runs and can be reached from here');
    if (!answer.isCnapi)
      return part.warn(
        `something other than cnapi answers at ${url}`,
        'check what listens there, or which proxy is in between',
      );
    if (!answer.isReady)
      return part.warn(`${url} answers that it is not ready`, `GET ${url}/ready and its log say why`);
    const text = `${url} answers; its clock is ${Math.abs(answer.skewMs) < MUCH_SKEW_MS ? 'this machine’s' : `${Math.round(answer.skewMs / 1000)} s off`}`;
    if (Math.abs(answer.skewMs) < MUCH_SKEW_MS) return part.ok(text);
    return part.warn(text, 'have both machines’ clocks synchronised (chrony, systemd-timesyncd)');
  });
  if (live.length === 0) return [part.ok('no instance runs yet')];
  return [...(await Promise.all(each)), ...checkCapacity(all)];
}

/** Warns when every instance that is not draining turns agents away. */
function checkCapacity(live: readonly InstanceRow[]): Finding[] {
  const staying = live.filter(({ isDraining }) => !isDraining);
  const turning = staying.filter(({ admission }) => admission === 'paced' || admission === 'closed');
  if (turning.length < staying.length || staying.length === 0) return [];
  const agents = staying.reduce((sum, one) => sum + one.agents, 0);
  return [
    findings('instances').warn(
      `the zone is at capacity: each of its ${staying.length} instances tells agents to return later; they hold ${agents}`,
      'wait if many agents have just come; if it lasts, add an instance on another machine (docs/runbooks.md)',
    ),
  ];
}

const ANYWHERE: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

function urlOf({ host, port, tlsCertFile }: Config): string {
  const name = ANYWHERE[host] ?? host;
  return `${tlsCertFile === undefined ? 'http' : 'https'}://${name.includes(':') ? `[${name}]` : name}:${port}`;
}

interface Pong {
  isCnapi: boolean;
  isReady: boolean;
  skewMs: number;
}

const reasonOf = (error: unknown): string => (error instanceof HttpError ? error.reason : messageOf(error));

/**
 * The certificate is not verified, because the request holds no secret; `checkCertificate` checks
 * our own.
 */
async function ping(url: string, clock: Clock): Promise<Pong> {
  const { tls, ...to } = targetOf(url);
  const target = { ...to, ...(tls && { tls: { ...tls, isVerified: false as const } }) };
  const http = new HttpClient({ clock });
  const answer = await http.request({ target, method: 'GET', path: '/ping', totalMs: ANSWER_WITHIN_MS });
  const skewMs = Date.parse(answer.header('date') ?? '') - clock.wallTime();
  const isCnapi = /^cnapi\b/i.test(answer.header('server') ?? '');
  const isReady = readyIn(await beginningOf(answer)) && answer.status === 200;
  return { isCnapi, isReady, skewMs: Number.isNaN(skewMs) ? 0 : skewMs };
}

/** Any program may be answering. */
async function beginningOf(answer: HttpAnswer): Promise<string> {
  let text = '';
  for await (const piece of answer.pieces()) {
    text += piece.toString('latin1');
    if (text.length > MOST_CHARACTERS) break;
  }
  return text;
}

function readyIn(text: string): boolean {
  try {
    return (JSON.parse(text) as { ready?: unknown } | null)?.ready === true;
  } catch {
    return false;
  }
}
