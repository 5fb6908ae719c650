/**
 * Chooses servers for VMs. It reads servers in chunks that begin at a random uuid, runs the
 * pipeline on each chunk, and claims room on the best server under a guard. When others took the
 * room first, it tries the next best one, then reads the chunk again; when no server of a chunk
 * fits, it reads the next chunk, until all servers were tried. Called by `routes/`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import { type Random, shuffled } from '../../platform/random.ts';
import { type CandidateServer, type ServerLimits, serverLimitsOf, unreservedOf, type VmSize } from './candidate.ts';
import { type LoadQuery, readCandidates, readChunk, readVmServers } from './candidate-store.ts';
import { claimRoom, deleteExpiredClaims, readRoomClaim, releaseRoom } from './claim-store.ts';
import { Funnel } from './funnel.ts';
import { type Pipeline, type PipelineResult, runPipeline } from './pipeline.ts';
import { NoAllocatableServersError, TooManyClaimsError, VolumeServerNoResourcesError } from './placement-errors.ts';
import { namedVmsOf, type PlacementRequest } from './request.ts';
import type { PlacementSettings } from './settings.ts';
import type { StepContext } from './steps.ts';

interface AllocatorDeps {
  database: Queryable;
  random: Random;
  config: PlacementSettings;
}

/** The chosen server, and what the pipeline said about the chunk in which it was. */
export interface Selection {
  candidate: CandidateServer | undefined;
  unreserved: VmSize | undefined;
  result: PipelineResult;
  funnel: Funnel;
}

interface AllocatorStats {
  claimed: number;
  refused: number;
  lostClaims: number;
  /** Allocations refused because their caller had as many claims as it may. */
  overQuota: number;
}

/**
 * The reference reads chunks of this size. Later chunks are larger here, so that a refusal costs
 * few statements.
 */
const FIRST_CHUNK = 50;
const MAX_CHUNK = 500;
/** How many servers of a chunk it tries before it reads the chunk again, and how often it does. */
const TRIES = 10;
const ROUNDS = 10;
/**
 * Tries of a request, each of which may find that another request has changed the claim of this VM.
 */
const CLAIM_TRIES = 5;
const LOWEST = '00000000-0000-0000-0000-000000000000';
const HIGHEST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
const EMPTY: PipelineResult = { ranked: [], scores: new Map(), steps: [] };

/** One request while it is answered. */
interface Search {
  request: PlacementRequest;
  servers: readonly string[] | undefined;
  loadQuery: LoadQuery;
  context: StepContext;
  funnel: Funnel;
  caller: string | undefined;
  /** A server on which the VM has a claim that does not suit any more. */
  replacedServer: string | undefined;
}

export class Allocator {
  readonly #deps: AllocatorDeps;
  readonly #stats: AllocatorStats = { claimed: 0, refused: 0, lostClaims: 0, overQuota: 0 };

  constructor(deps: AllocatorDeps) {
    this.#deps = deps;
  }

  get stats(): Readonly<AllocatorStats> {
    return this.#stats;
  }

  /**
   * Chooses a server and claims the room. `servers`: only these. `caller`: whose claims are
   * counted.
   * @throws NoAllocatableServersError, VolumeServerNoResourcesError, TooManyClaimsError
   */
  async allocate(
    request: PlacementRequest,
    { servers, caller }: { servers?: readonly string[] | undefined; caller?: string | undefined } = {},
  ): Promise<Selection> {
    const search = { ...(await this.#newSearch(request, servers)), caller };
    const selection = (await this.#allocateAgain(search)) ?? (await this.#allocateNew(search));
    if (selection === undefined) {
      this.#stats.refused += 1;
      const { funnel } = search;
      throw funnel.isAboutVolumes
        ? new VolumeServerNoResourcesError(funnel.summary())
        : new NoAllocatableServersError(funnel.summary());
    }
    this.#stats.claimed += 1;
    return selection;
  }

  /** Gives up the room that is held for a VM on this server. */
  release(vmUuid: string, serverUuid: string): Promise<void> {
    return releaseRoom(this.#deps.database, { vmUuid, serverUuid });
  }

  /** What would be chosen now. Claims nothing. */
  async explain(request: PlacementRequest, servers?: readonly string[]): Promise<Selection> {
    const search = await this.#newSearch(request, servers);
    let result = EMPTY;
    for await (const chunk of this.#chunks(search)) {
      result = this.#run(search, chunk);
      search.funnel.add(chunk, result);
      if (result.ranked.length > 0) break;
    }
    return this.#selection(search, result.ranked[0], result);
  }

  /** The room left on these servers, or on all, and why some have none. */
  async capacity(
    servers?: readonly string[],
  ): Promise<{ unreserved: Map<string, VmSize>; reasons: Map<string, string> }> {
    const { placementRatios } = this.#deps.config;
    const loadQuery = { vmUuid: '', ownerUuid: '', namedVms: [] };
    const search = { ...(await this.#newSearch(NO_REQUEST, servers)), loadQuery };
    const unreserved = new Map<string, VmSize>();
    const reasons = new Map<string, string>();
    for await (const chunk of this.#chunks(search, MAX_CHUNK)) {
      const { ranked, steps } = runPipeline(CAPACITY_PIPELINE, chunk, search.context);
      for (const candidate of ranked) unreserved.set(candidate.uuid, unreservedOf(candidate, placementRatios));
      for (const step of steps) for (const [uuid, reason] of step.explanations) reasons.set(uuid, reason);
    }
    return { unreserved, reasons };
  }

  /** Deletes a batch of claims that expired long ago. Returns how many. */
  deleteExpired(): Promise<number> {
    return deleteExpiredClaims(this.#deps.database, MAX_CHUNK);
  }

  async #newSearch(request: PlacementRequest, servers: readonly string[] | undefined): Promise<Search> {
    const { database, random, config } = this.#deps;
    const namedVms = namedVmsOf(request);
    const located = namedVms.length === 0 ? [] : await readVmServers(database, request.ownerUuid, namedVms);
    return {
      request,
      servers: servers && shuffled(servers, random),
      loadQuery: { vmUuid: request.vmUuid, ownerUuid: request.ownerUuid, namedVms },
      context: {
        request,
        ratios: config.placementRatios,
        maxVms: config.placementMaxVms,
        weights: config.placementWeights,
        located: new Map(located.map(({ vmUuid, ...place }) => [vmUuid, place])),
        random,
      },
      funnel: new Funnel(),
      caller: undefined,
      replacedServer: undefined,
    };
  }

  /**
   * The same server as for an equal request before, if it still suits; else that claim is given up.
   */
  async #allocateAgain(search: Search): Promise<Selection | undefined> {
    const { request, servers, loadQuery } = search;
    const { database } = this.#deps;
    const known = await readRoomClaim(database, { ...request, ...request.size });
    if (known === undefined) return undefined;
    if (servers === undefined || servers.includes(known)) {
      const candidates = await readCandidates(database, loadQuery, [known]);
      const result = this.#run(search, candidates);
      const selection = await this.#claimOneOf(search, result);
      if (selection !== undefined) return selection;
    }
    search.replacedServer = known;
    return undefined;
  }

  async #allocateNew(search: Search): Promise<Selection | undefined> {
    for await (const chunk of this.#chunks(search)) {
      let candidates = chunk;
      for (let round = 1; round <= ROUNDS; round++) {
        const result = this.#run(search, candidates);
        if (round === 1) search.funnel.add(chunk, result);
        if (result.ranked.length === 0) break;
        const selection = await this.#claimOneOf(search, result);
        if (selection !== undefined) return selection;
        candidates = await readCandidates(this.#deps.database, search.loadQuery, uuidsOf(chunk));
      }
    }
    return undefined;
  }

  async #claimOneOf(search: Search, result: PipelineResult): Promise<Selection | undefined> {
    for (const candidate of result.ranked.slice(0, TRIES)) {
      const serverUuid = await this.#claim(search, candidate);
      if (serverUuid === candidate.uuid) return this.#selection(search, candidate, result);
      if (serverUuid !== undefined) {
        const [other] = await readCandidates(this.#deps.database, search.loadQuery, [serverUuid]);
        if (other !== undefined) return this.#selection(search, other, result);
      }
      this.#stats.lostClaims += 1;
      search.funnel.addLost();
    }
    return undefined;
  }

  /**
   * The server with the claim: this one, or that of an equal request at the same time. Undefined:
   * it is full.
   * @throws NoAllocatableServersError when the room of the VM cannot move, TooManyClaimsError
   */
  async #claim({ request, replacedServer, caller }: Search, candidate: CandidateServer): Promise<string | undefined> {
    const { database, config } = this.#deps;
    const { vmUuid, ownerUuid, size } = request;
    const { placementClaimsPerCaller: maxClaims } = config;
    const room = {
      vmUuid,
      ownerUuid,
      ...size,
      serverUuid: candidate.uuid,
      replacedServer,
      claimMs: config.placementClaimMs,
      caller: maxClaims === 0 ? undefined : caller,
      maxClaims,
    };
    const limits = guardedLimits(config, candidate);
    for (let attempt = 1; attempt <= CLAIM_TRIES; attempt++) {
      const claim = await claimRoom(database, { ...room, limits });
      if (claim === undefined) continue;
      if (claim.outcome === 'many') {
        this.#stats.overQuota += 1;
        throw new TooManyClaimsError(maxClaims);
      }
      if (claim.outcome === 'creating')
        throw new NoAllocatableServersError(`VM ${vmUuid} is being created on server ${claim.serverUuid}`);
      return claim.outcome === 'claimed' || claim.outcome === 'known' ? claim.serverUuid : undefined;
    }
    return undefined;
  }

  #run({ context }: Search, candidates: readonly CandidateServer[]): PipelineResult {
    return runPipeline(this.#deps.config.placementSteps, candidates, context);
  }

  #selection({ funnel }: Search, candidate: CandidateServer | undefined, result: PipelineResult): Selection {
    const unreserved = candidate && unreservedOf(candidate, this.#deps.config.placementRatios);
    return { candidate, unreserved, result, funnel };
  }

  /** All servers that may be chosen, each once, beginning at a random one. */
  async *#chunks({ servers, loadQuery }: Search, first = FIRST_CHUNK): AsyncGenerator<CandidateServer[]> {
    const { database, random } = this.#deps;
    let size = first;
    if (servers !== undefined) {
      for (let begin = 0; begin < servers.length; begin += size, size = larger(size)) {
        const candidates = await readCandidates(database, loadQuery, servers.slice(begin, begin + size));
        if (candidates.length > 0) yield candidates;
      }
      return;
    }
    const start = random.uuid();
    // A chunk goes on with the first servers where the last ones end: a small zone is one chunk.
    let chunk: CandidateServer[] = [];
    for (const [begin, last] of [
      [start, HIGHEST],
      [LOWEST, start],
    ] as const) {
      for (let after: string | undefined = begin; after !== undefined; ) {
        const missing = size - chunk.length;
        const candidates: CandidateServer[] = await readChunk(database, loadQuery, { after, last, size: missing });
        chunk.push(...candidates);
        after = candidates.length < missing ? undefined : candidates.at(-1)?.uuid;
        if (chunk.length < size) continue;
        yield chunk;
        chunk = [];
        size = larger(size);
      }
    }
    if (chunk.length > 0) yield chunk;
  }
}

const larger = (size: number): number => Math.min(2 * size, MAX_CHUNK);
const uuidsOf = (candidates: readonly CandidateServer[]): string[] => candidates.map(({ uuid }) => uuid);

/** A resource is guarded if the pipeline looks at it. */
function guardedLimits(
  { placementSteps, placementRatios, placementMaxVms }: PlacementSettings,
  candidate: CandidateServer,
): ServerLimits {
  const names = placementSteps.flat();
  const limits = serverLimitsOf(candidate, placementRatios);
  return {
    vms: names.includes('hard-filter-vm-count') ? placementMaxVms : undefined,
    ram: names.includes('hard-filter-min-ram') ? limits.ram : undefined,
    disk: names.includes('hard-filter-min-disk') ? limits.disk : undefined,
    cpu: names.includes('hard-filter-min-cpu') ? limits.cpu : undefined,
  };
}

const CAPACITY_PIPELINE: Pipeline = [['hard-filter-setup'], ['hard-filter-running'], ['hard-filter-invalid-servers']];
const NO_REQUEST: PlacementRequest = {
  vmUuid: '',
  ownerUuid: '',
  isCreatedNext: false,
  size: { ram: 0, disk: 0, cpu: 0 },
  ratios: {},
  traits: {},
  nicTags: [],
  nicTagRequirements: [],
  locality: undefined,
  volumesFrom: [],
  minPlatforms: [],
  maxPlatforms: [],
};
