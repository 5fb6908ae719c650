/**
 * Whole instances in this process on one fresh database, for tests of several instances together.
 */
import { randomUUID } from 'node:crypto';
import { App, type AppDeps } from '../../lib/control/app.ts';
import { parseConfig } from '../../lib/control/config.ts';
import { buildBucket } from '../../lib/control/documents/document-bucket.ts';
import { serversBucket } from '../../lib/control/servers/server-bucket.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { vmsBucket } from '../../lib/control/vms/vm-bucket.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { nounList } from '../../lib/protocol/api/all-contracts.ts';
import { checkAnswer } from './contracts.ts';
import { freshDatabase, type Teardown } from './postgres.ts';
import { until } from './until.ts';

export interface TestApp {
  app: App;
  cnapiUuid: string;
  url: string;
  get<Body = unknown>(path: string): Promise<{ status: number; body: Body }>;
  post<Body = unknown>(
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<{ status: number; body: Body }>;
  put<Body = unknown>(path: string, body?: unknown): Promise<{ status: number; body: Body }>;
  delete(path: string): Promise<number>;
  stop(): Promise<void>;
}

export interface TestZone {
  url: string;
  database: PostgresDatabase;
  startApp(config?: Record<string, unknown>, ports?: Partial<Pick<AppDeps, 'eventLoop' | 'log'>>): Promise<TestApp>;
}

/**
 * Graces are short here, so tests need not wait. Periods that a busy machine could miss are the
 * real ones.
 */
const SHORT_GRACES = {
  reconnectMaxMs: 500,
  startGraceMs: 500,
  ownerlessGraceMs: 500,
  slowPollMs: 1000,
  logLevel: 'fatal',
};

/** What the first instance would create in each new database; this takes half of its start. */
const buckets = [serversBucket, vmsBucket, ...nounList.map(buildBucket)];

export async function freshZone(t: Teardown): Promise<TestZone> {
  const { url, database } = await freshDatabase(t, { migrations, buckets });
  const startApp: TestZone['startApp'] = async (config = {}, ports = {}) => {
    const cnapiUuid = randomUUID();
    const parsed = parseConfig({
      ...SHORT_GRACES,
      databaseUrl: url,
      databasePoolSize: 4,
      port: 0,
      cnapiUuid,
      ...config,
    });
    const app = new App({
      config: { ...parsed, cnapiUuid },
      log: silentLogger,
      clock: systemClock,
      random: systemRandom,
      ...ports,
    });
    t.teardown(() => app.stop());
    await app.start();
    return testApp(app, cnapiUuid);
  };
  return { url, database, startApp };
}

/**
 * Creates a task that does nothing, as soon as the server is there and running. That is a moment
 * after its agent has joined.
 */
export function nopTask(app: TestApp, serverUuid: string): Promise<{ id: string }> {
  return until(async () => {
    const { status, body } = await app.post<{ id: string }>(`/servers/${serverUuid}/nop`);
    return status < 300 ? body : undefined;
  }, 'a task to be accepted');
}

function testApp(app: App, cnapiUuid: string): TestApp {
  const { url } = app;
  const call = async <Body>(method: string, path: string, body?: unknown, further: Record<string, string> = {}) => {
    const headers = { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...further };
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(`${url}${path}`, { method, headers, ...sent });
    const text = await response.text();
    const contentType = response.headers.get('content-type');
    checkAnswer(method, path, { status: response.status, contentType, text });
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Body };
  };
  return {
    app,
    cnapiUuid,
    url,
    get: (path) => call('GET', path),
    post: (path, body = {}, headers = {}) => call('POST', path, body, headers),
    put: (path, body = {}) => call('PUT', path, body),
    delete: async (path) => (await call('DELETE', path)).status,
    stop: () => app.stop(),
  };
}
