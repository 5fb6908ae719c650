/**
 * Repeatedly asks every instance for the status of every server that was `running` at the start,
 * and finally for the history of each: a live server is never `unknown` (I1 of docs/design.md). An
 * instance that does not answer is ignored.
 */
import type { Clock } from '../../lib/platform/clock.ts';
import { authorizationFor } from './authorization.ts';

export interface WatchDeps {
  urls: readonly string[];
  clock: Clock;
}

interface Server {
  uuid: string;
  status: string;
}

interface StatusChange {
  status: string;
  reason: string;
  since: string;
}

const LOOK_MS = 250;
const ANSWER_WITHIN_MS = 5_000;

export class Watch {
  readonly complaints = new Set<string>();
  answers = 0;
  readonly #deps: WatchDeps;
  readonly #stopping = new AbortController();
  #living = new Map<string, number>();
  #loops: Promise<unknown> | undefined;

  constructor(deps: WatchDeps) {
    this.#deps = deps;
  }

  get servers(): string[] {
    return [...this.#living.keys()];
  }

  /** Servers that are running now must stay running. */
  async start(): Promise<void> {
    const { urls } = this.#deps;
    for (const { uuid, status } of (await this.#servers(urls[0] as string)) ?? []) {
      if (status === 'running') this.#living.set(uuid, (await this.#history(uuid)).length);
    }
    this.#loops = Promise.all(urls.map((url) => this.#ask(url)));
  }

  async finish(): Promise<void> {
    this.#stopping.abort();
    await this.#loops;
    for (const [uuid, entriesBefore] of this.#living) {
      const changes = await this.#history(uuid);
      for (const { status, reason, since } of changes.slice(0, changes.length - entriesBefore)) {
        if (status === 'unknown') this.complaints.add(`server ${uuid} became unknown at ${since}: ${reason}`);
      }
    }
  }

  async #ask(url: string): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const servers = await this.#servers(url);
      if (servers !== undefined) this.#compare(url, servers);
      await this.#deps.clock.sleep(LOOK_MS, signal);
    }
  }

  #compare(url: string, servers: readonly Server[]): void {
    this.answers += 1;
    const statuses = new Map(servers.map(({ uuid, status }) => [uuid, status]));
    for (const uuid of this.#living.keys()) {
      const status = statuses.get(uuid);
      if (status !== 'running') this.complaints.add(`${url} says that server ${uuid} is ${status ?? 'not there'}`);
    }
  }

  async #servers(url: string): Promise<Server[] | undefined> {
    const found: Server[] = [];
    for (let offset = 0; ; offset += 1000) {
      const page = await getJson<Server[]>(`${url}/servers?extras=status&fields=uuid,status&offset=${offset}`);
      if (page === undefined) return undefined;
      found.push(...page);
      if (page.length < 1000) return found;
    }
  }

  async #history(uuid: string): Promise<StatusChange[]> {
    for (const url of this.#deps.urls) {
      const changes = await getJson<StatusChange[]>(`${url}/servers/${uuid}/status-history?limit=1000`);
      if (changes !== undefined) return changes;
    }
    throw new Error(`no instance gives the status history of server ${uuid}`);
  }
}

/** Returns undefined when there is no answer, or one other than 200. */
export async function getJson<Body>(url: string): Promise<Body | undefined> {
  const answer = await answerTo<Body>(url);
  return answer?.status === 200 ? answer.body : undefined;
}

/** Returns undefined when there is no answer. */
export async function answerTo<Body>(url: string): Promise<{ status: number; body: Body } | undefined> {
  try {
    const headers = await authorizationFor(url);
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(ANSWER_WITHIN_MS) });
    return { status: response.status, body: (await response.json()) as Body };
  } catch {
    return undefined;
  }
}
