/**
 * Listeners with one route for reading, one for changing and one that the database is too busy for,
 * which take signed requests, on one database: what instances are made of, as far as signatures
 * concern them.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { Authenticator } from '../../../../lib/control/access/authenticator.ts';
import { TokenAuthenticator } from '../../../../lib/control/access/token-authenticator.ts';
import { Tokens } from '../../../../lib/control/access/tokens.ts';
import { AuditLog } from '../../../../lib/control/audit/audit-log.ts';
import { ChefAuthentication } from '../../../../lib/control/chef/signatures/chef-authentication.ts';
import { CallerLimits } from '../../../../lib/control/http/limits/caller-limits.ts';
import { HttpListener } from '../../../../lib/control/http/listener/listener.ts';
import { RequestMetrics } from '../../../../lib/control/http/listener/request-metrics.ts';
import { RequestPipeline } from '../../../../lib/control/http/listener/request-pipeline.ts';
import { bind, ok, type Route, recordedInCommit } from '../../../../lib/control/http/route.ts';
import { Metrics } from '../../../../lib/control/metrics/metrics.ts';
import { Organizations } from '../../../../lib/control/organizations/organizations.ts';
import { checkMayAct } from '../../../../lib/control/organizations/requestor.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import type { PostgresDatabase } from '../../../../lib/platform/postgres/pool.ts';
import { SqlParameters } from '../../../../lib/platform/postgres/sql-text.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../../lib/platform/time/clock.ts';
import { contracts } from '../../../../lib/protocol/api/contract/contract.ts';
import { freshDatabase, type Teardown } from '../../../support/postgres.ts';
import { type Signer, signed } from './sign.ts';

interface Answer {
  status: number;
  headers: Headers;
  body: { message?: string; name?: string; kind?: string; groups?: string[]; actor?: string; received?: string };
}

export interface SignedApi {
  url: string;
  audit: AuditLog;
  authenticator: Authenticator;
  /** A signed request. `changes`: headers other than those that were signed. */
  call(method: string, signer: Signer, request?: Partial<Request>, changes?: object): Promise<Answer>;
  /** Sends a request with these headers only. */
  send(method: string, headers: object, request?: Partial<Request>): Promise<Answer>;
}

interface Request {
  organization: string;
  body: string;
}

interface ApiConfig {
  failedAuthenticationsPerMinute?: number;
  requestsPerSecond?: number;
  maxChanges?: number;
  /** Whether its beats succeed. */
  isHealthy?: () => boolean;
  /** What limits go by. */
  clock?: Clock;
}

export interface SignedZone {
  database: PostgresDatabase;
  organizations: Organizations;
  /** Creates a document and returns its uuid. */
  create(kind: keyof Organizations['documents'], fields: object): Promise<string>;
  startApi(config?: ApiConfig): Promise<SignedApi>;
}

const TARGET = { tag: 'misc', origin: 'own', preconditions: [], signed: true } as const;
const place = { path: '/organizations/:organization/pushy/place', params: z.object({ organization: z.string() }) };
const responses = { 200: { description: 'OK', schema: z.looseObject({}) } };
const placeContracts = contracts({
  ReadPlace: { ...TARGET, ...place, method: 'GET', summary: '', responses },
  ChangePlace: { ...TARGET, ...place, method: 'POST', takesAnyBody: true, summary: '', responses },
  BusyPlace: { ...TARGET, ...place, method: 'PUT', takesAnyBody: true, summary: '', responses },
});

function placeRoutes(organizations: Organizations): Route[] {
  const answerTo = (action: 'read' | 'write') => async (context: Parameters<Route['handler']>[0]) => {
    const { actor, body, params } = context as unknown as {
      actor: never;
      body: Buffer;
      params: { organization: string };
    };
    const requestor = await organizations.requestor(actor, params.organization);
    checkMayAct(requestor, action);
    const { name, kind, groups } = requestor;
    return ok({ name, kind, groups: [...groups].toSorted(), actor: requestor.actor.name, received: String(body) });
  };
  const rawBody = { maxBytes: 1_000_000 };
  const refuse = (): Promise<never> => Promise.reject(new DatabaseBusyError('locked'));
  /** Refused where the rights are read, or by the statement of the change, as the body says. */
  const refuseAsAsked = ({ body, withAuditRecord }: Parameters<Route['handler']>[0]) =>
    String(body) === 'rights'
      ? refuse()
      : withAuditRecord((record) => {
          record?.(new SqlParameters([]));
          return refuse();
        });
  return bind(
    placeContracts,
    {
      ReadPlace: answerTo('read') as never,
      ChangePlace: answerTo('write') as never,
      BusyPlace: recordedInCommit(refuseAsAsked) as never,
    },
    { ReadPlace: { rawBody }, ChangePlace: { rawBody }, BusyPlace: { rawBody } },
  );
}

export async function signedZone(t: Teardown): Promise<SignedZone> {
  const { database, open } = await freshDatabase(t, { migrations });
  const organizations = new Organizations({ database, random });
  await organizations.prepare();
  return {
    database,
    organizations,
    async create(kind, fields) {
      const whole = organizations.documents[kind].noun.document.partial({ uuid: true }).parse(fields);
      const { value } = await organizations.documents[kind].create(whole, (work) => work(undefined));
      return String(value.uuid);
    },
    startApi: (config = {}) => startApi(t, open(), config),
  };
}

async function startApi(
  t: Teardown,
  database: PostgresDatabase,
  { clock = systemClock, maxChanges, isHealthy = () => true, ...config }: ApiConfig,
): Promise<SignedApi> {
  const access = {
    access: 'tokens',
    trustedNetworks: [],
    requestsPerSecond: 0,
    connectionsPerSource: 0,
    failedAuthenticationsPerMinute: 0,
    ...config,
  } as const;
  const tokenAuthenticator = new TokenAuthenticator({ database, backgroundDatabase: database, clock, log });
  const audit = new AuditLog({ database, cnapiUuid: random.uuid(), clock, random, log });
  const organizations = new Organizations({ database, random });
  const chef = new ChefAuthentication({ database, maxChanges });
  const authenticator = new Authenticator({ config: access, clock, tokenAuthenticator });
  const limits = {
    answerMemoryMiB: 64,
    answerMemoryPerCallerMiB: 32,
    logLinesPerSource: 0,
    eventStreamsPerCaller: 0,
    waitsPerCaller: 0,
  };
  const build = { version: '1.0.0', node: 'v24', datacenter: 'testdc', cnapiUuid: 'i', host: 's' };
  const listener = new HttpListener({
    config: {
      ...{ host: '127.0.0.1', port: 0, datacenter: 'testdc', domain: 'cnapi.test' },
      ...{ maxAgents: 10, handshakesPerSecond: 0 },
    },
    version: '1.0.0',
    pipeline: new RequestPipeline({ authenticator, audit, isDatabaseHealthy: isHealthy, signing: chef, log }),
    limits: new CallerLimits({ ...access, ...limits }, { clock, log }),
    metrics: new RequestMetrics(new Metrics({ build, clock })),
    clock,
    random,
    log,
  });
  await listener.start({
    routes: placeRoutes(organizations),
    requireServer: () => Promise.reject(new Error('not here')),
    upgrades: [],
  });
  t.teardown(() => Promise.all([listener.stop(), audit.stop()]));
  const { url } = listener;
  const send: SignedApi['send'] = async (method, headers, { organization = 'acme', body = '' } = {}) => {
    const sent = method === 'GET' ? {} : { body };
    const defined = Object.entries(headers).filter(([, value]) => value !== undefined);
    const response = await fetch(`${url}/organizations/${organization}/pushy/place`, {
      method,
      headers: Object.fromEntries(defined) as Record<string, string>,
      ...sent,
    });
    return { status: response.status, headers: response.headers, body: (await response.json()) as Answer['body'] };
  };
  return {
    url,
    audit,
    authenticator,
    send,
    call(method, signer, request = {}, changes = {}) {
      const { organization = 'acme', body = '' } = request;
      const target = `/organizations/${organization}/pushy/place`;
      return send(method, { ...signed({ method, target, body }, signer), ...changes }, request);
    },
  };
}

export function keyPair(): { publicKey: string; privateKey: KeyObject } {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { publicKey: publicKey.export({ type: 'spki', format: 'pem' }) as string, privateKey };
}

/** A token and its header. */
export async function bearer(database: PostgresDatabase, role: 'reader' | 'operator' | 'agent'): Promise<object> {
  const { token } = await new Tokens({ database, random }).create({ name: `the ${role}`, role, createdBy: 'test' });
  return { Authorization: `Bearer ${token}` };
}
