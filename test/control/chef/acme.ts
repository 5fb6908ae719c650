/**
 * An organization `acme` with some nodes, in a zone of two instances, and requests as its clients
 * send them.
 */
import type { Test } from 'tap';
import { silentLogger } from '../../../lib/platform/log.ts';
import { freshZone, type TestApp, type TestZone } from '../../support/apps.ts';
import { checkAnswer } from '../../support/contracts.ts';
import { startAgents, type TestAgent } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { ENDS } from '../push/jobs.ts';
import { type Signer, signed } from './signatures/sign.ts';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test is about the form of its own route
  body: any;
}

export interface Asked {
  body?: unknown;
  headers?: Record<string, string>;
  signer?: Signer;
}

export async function asked(app: TestApp, method: string, target: string, options: Asked = {}): Promise<Answer> {
  const { body, headers = {}, signer } = options;
  const content = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body);
  const signature = signer === undefined ? {} : signed({ method, target, body: content }, signer);
  const response = await fetch(`${app.url}${target}`, {
    method,
    headers: {
      ...(content === '' ? {} : { 'content-type': 'application/json' }),
      ...(signature as Record<string, string>),
      ...headers,
    },
    ...(content === '' ? {} : { body: content }),
  });
  const text = await response.text();
  const contentType = response.headers.get('content-type');
  checkAnswer(method, target, { status: response.status, contentType, text });
  const isJson = contentType === 'application/json' && text !== '';
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
}

/** The uuid of the document that it creates. */
export async function created(app: TestApp, path: string, body: object): Promise<string> {
  const made = await app.post<{ uuid: string }>(path, body);
  if (made.status !== 201) throw new Error(`${path}: ${JSON.stringify(made)}`);
  return made.body.uuid;
}

export interface Acme {
  zone: TestZone;
  a: TestApp;
  b: TestApp;
  agents: TestAgent[];
  /** The uuid of the organization, and of another one. */
  acme: string;
  other: string;
  /** Names of the agents' nodes. All but the last one belong to acme, the last one to the other. */
  names: string[];
}

export const JOBS = '/organizations/acme/pushy/jobs';

export async function startAcme(
  t: Test,
  count: number,
  config: Record<string, unknown> = {},
  log = silentLogger,
): Promise<Acme> {
  const zone = await freshZone(t);
  const a = await zone.startApp(config, { log });
  const b = await zone.startApp(config, { log });
  const agents = await startAgents(t, [a, b], count + 1);
  const acme = await created(a, '/organizations', { name: 'acme' });
  const other = await created(a, '/organizations', { name: 'other' });
  for (const { serverUuid: server_uuid } of agents)
    await created(a, '/bindings', {
      organization: server_uuid === agents.at(-1)?.serverUuid ? other : acme,
      server_uuid,
    });
  const names = await Promise.all(
    agents.map(async ({ serverUuid }) => (await a.get<{ hostname: string }>(`/servers/${serverUuid}`)).body.hostname),
  );
  return { zone, a, b, agents, acme, other, names };
}

export function ended(app: TestApp, id: string, options: Asked = {}): Promise<Answer['body']> {
  return until(async () => {
    const { body } = await asked(app, 'GET', `${JOBS}/${id}`, options);
    return ENDS.includes(body.status) ? body : undefined;
  }, `push job ${id} to end`);
}
