/**
 * Answers the routes of push jobs for clients of Chef (lib/protocol/api/chef.ts), in its
 * order: the signature, the organization, the group, Accept, the object, the body.
 */
import { CnapiError } from '../../../platform/errors.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Random } from '../../../platform/random.ts';
import { chefContracts, MAX_CHEF_BODY_BYTES } from '../../../protocol/api/chef.ts';
import type { Cursor } from '../../../protocol/api/contract/cursor.ts';
import type { Organization } from '../../../protocol/api/documents/organizations.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { STREAM_BYTES } from '../../http/answer/event-stream.ts';
import { answerRows, ROW_STREAM_BYTES } from '../../http/answer/row-stream.ts';
import { bind, content, ok, type RequestContext, type Route, recordedInCommit } from '../../http/route.ts';
import type { Organizations } from '../../organizations/organizations.ts';
import { checkMayAct, type PushJobAction, type Requestor } from '../../organizations/requestor.ts';
import { PushJobEndedError } from '../../push/push-errors.ts';
import type { PushJobs } from '../../push/push-jobs.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { chefErrorAnswer } from '../error-form.ts';
import type { ChefFeeds } from '../feeds/chef-feeds.ts';
import { parseJobBody } from '../push-jobs/job-body.ts';
import { parseChefId, toChefId, toChefJob, toChefNodeState, toCountedChefJob } from '../push-jobs/job-shape.ts';
import { buildPushJob } from '../push-jobs/new-job.ts';
import * as store from '../push-jobs/organization-jobs-store.ts';
import { ChefJobNotFoundError, NoOutputError, NotJsonError } from '../pushy-errors.ts';
import { baseUrlOf, checkAccept } from './negotiation.ts';
import { type NodeConfigDeps, nodeConfig } from './node-config.ts';

export interface ChefRouteDeps {
  database: Queryable;
  pushJobs: Pick<PushJobs, 'create' | 'abort' | 'delete' | 'nodeStates'>;
  feeds: ChefFeeds;
  organizations: Pick<Organizations, 'nodesOf' | 'allNodes' | 'requestor'>;
  tasks: Pick<Tasks, 'get'>;
  sessions: { run(): string; readonly size: number };
  random: Random;
  config: NodeConfigDeps['config'] & { host: string; tlsCertFile?: string | undefined };
}

/** Who asks, and about which organization. */
type Authorized = Requestor & { organization: Organization };
type OrganizationContext<Params> = RequestContext<Params & { organization: string }>;

const JSON_TYPE = 'application/json';
const EVENTS_TYPE = 'text/event-stream';
const BYTES_TYPE = 'application/octet-stream';
/** The first jobs of a list, whatever their size, are read together. */
const FIRST_JOBS = { rows: 100, bytes: 256 * 1024 };
/** Names of 20,000 nodes. */
const JOB_BYTES = 1024 * 1024;
const OUTPUT_BYTES = 4 * 1024 * 1024;
/** A proxy (nginx) must not gather events. */
const UNBUFFERED = { 'X-Accel-Buffering': 'no' };

export function chefRoutes(deps: ChefRouteDeps): Route[] {
  const access = authorizer(deps);
  const routes = [
    ...statusRoutes(deps),
    ...jobRoutes(deps, access),
    ...outputRoutes(deps, access),
    ...nodeRoutes(deps, access),
    ...configRoutes(deps, access),
    ...feedRoutes(deps, access),
  ];
  // The body is checked by its handler, after the caller's rights.
  return routes.map((route) => ({
    ...route,
    params: route.method === 'POST' ? route.params.partial() : route.params,
    rawBody: { maxBytes: MAX_CHEF_BODY_BYTES },
    errorAnswer: chefErrorAnswer,
  }));
}

type Authorizer = ReturnType<typeof authorizer>;

/** What several routes check first. */
function authorizer(deps: ChefRouteDeps) {
  async function authorize(
    context: OrganizationContext<unknown>,
    action: PushJobAction,
    type = JSON_TYPE,
  ): Promise<Authorized> {
    const requestor = await deps.organizations.requestor(context.actor, context.params.organization);
    checkMayAct(requestor, action);
    checkAccept(context.header('Accept'), type);
    return requestor;
  }

  async function jobIn({ organization }: Authorized, id: string): Promise<store.OrganizationJob> {
    const uuid = parseChefId(id);
    const job = uuid && (await store.readOrganizationJob(deps.database, organization.uuid, uuid));
    if (job === undefined || job === '') throw new ChefJobNotFoundError(id, organization.name);
    return job;
  }

  const baseUrl = ({ header }: Pick<RequestContext<never>, 'header'>) =>
    baseUrlOf({
      host: header('Host') ?? deps.config.host,
      forwardedProto: header('X-Forwarded-Proto'),
      isTls: deps.config.tlsCertFile !== undefined,
    });

  return { authorize, jobIn, baseUrl };
}

function statusRoutes({ sessions }: ChefRouteDeps): Route[] {
  const { GetChefStatus } = chefContracts;
  return bind(
    { GetChefStatus },
    {
      GetChefStatus: () =>
        ok({
          status: "it's alive" as const,
          incarnation_id: sessions.run(),
          node_fsm_count: sessions.size,
          // Anybody may ask: Chef lists the ids of jobs here.
          job_processes: [],
        }),
    },
    { GetChefStatus: { withoutDatabase: true, quiet: true } },
  );
}

function jobRoutes(
  { database, pushJobs, organizations, random }: ChefRouteDeps,
  { authorize, jobIn, baseUrl }: Authorizer,
): Route[] {
  const { CreateChefJob, ListChefJobs, GetChefJob, AbortChefJob, DeleteChefJob } = chefContracts;

  async function shown(authorized: Authorized, job: store.OrganizationJob, withFile = false) {
    const withContents = maySeeContents(authorized);
    const file = withFile && withContents && job.hasFile ? await store.readPushFile(database, job.id) : undefined;
    return toChefJob(job, { nodes: await store.readNodeNames(database, job.id), withContents, file });
  }

  return bind(
    { CreateChefJob, ListChefJobs, GetChefJob, AbortChefJob, DeleteChefJob },
    {
      CreateChefJob: recordedInCommit(async (context) => {
        const authorized = await authorize(context, 'write');
        checkIsJson(context.header('Content-Type'));
        const body = parseJobBody(context.body);
        const { organization } = authorized;
        const nodes = await organizations.nodesOf(organization, body.nodes);
        const job = buildPushJob({ id: random.uuid(), body, organization, requestor: authorized, nodes });
        await context.withAuditRecord((record) => pushJobs.create({ ...job, record }), job.id);
        const id = toChefId(job.id);
        const uri = `${baseUrl(context)}/organizations/${organization.name}/pushy/jobs/${id}`;
        return { status: 201 as const, body: { uri, id }, headers: { Location: uri } };
      }),
      async ListChefJobs(context) {
        const authorized = await authorize(context, 'read');
        const { status, limit = Number.POSITIVE_INFINITY, cursor, counts } = context.params;
        const withContents = maySeeContents(authorized);
        const first = cursor === undefined ? undefined : (await jobIn(authorized, cursor)).cursor;
        return answerRows({
          limit,
          firstChunk: FIRST_JOBS,
          async read(after: Cursor | undefined, { rows, bytes }) {
            const filter = { status, after: after ?? first, limit: rows, bytes, withCounts: counts === 'true' };
            const page = await store.listOrganizationJobs(database, authorized.organization.uuid, filter);
            return { rows: page.jobs.map((job) => toCountedChefJob(job, withContents)), next: page.next };
          },
        });
      },
      async GetChefJob(context) {
        const authorized = await authorize(context, 'read');
        const job = await jobIn(authorized, context.params.id);
        return ok(await shown(authorized, job, context.params.include_file === 'true'));
      },
      AbortChefJob: recordedInCommit(async (context) => {
        const authorized = await authorize(context, 'write');
        const { id } = await jobIn(authorized, context.params.id);
        await context
          .withAuditRecord((record) => pushJobs.abort(id, { how: 'hard', actor: authorized.actor.name, record }), id)
          .catch(unlessEnded);
        return ok(await shown(authorized, await jobIn(authorized, id)));
      }),
      DeleteChefJob: recordedInCommit(async (context) => {
        const authorized = await authorize(context, 'write');
        const job = await jobIn(authorized, context.params.id);
        const body = await shown(authorized, job);
        await context.withAuditRecord((record) => pushJobs.delete(job.id, record), job.id);
        return ok(body);
      }),
    },
    { ListChefJobs: { answerBytes: ROW_STREAM_BYTES }, GetChefJob: { answerBytes: JOB_BYTES } },
  );
}

function outputRoutes({ database, tasks }: ChefRouteDeps, { authorize, jobIn }: Authorizer): Route[] {
  const { GetChefStdout, GetChefStderr } = chefContracts;

  async function output(context: OrganizationContext<{ id: string; node: string }>, stream: 'stdout' | 'stderr') {
    const authorized = await authorize(context, 'read', BYTES_TYPE);
    const { id, node: name } = context.params;
    const job = await jobIn(authorized, id);
    if (!maySeeContents(authorized)) throw new NoOutputError('a token without the right to run tasks sees no output');
    if (job.options.capture !== true) throw new NoOutputError(`push job '${id}' does not capture output`);
    const node = await store.readNamedNode(database, job.id, name);
    const task = node?.task == null ? undefined : await taskOf(tasks, node.task);
    const text = task?.result?.[stream];
    if (typeof text !== 'string') throw new NoOutputError(`node '${name}' has no output in push job '${id}'`);
    return content({ contentType: BYTES_TYPE, content: text });
  }

  return bind(
    { GetChefStdout, GetChefStderr },
    {
      GetChefStdout: (context) => output(context, 'stdout'),
      GetChefStderr: (context) => output(context, 'stderr'),
    },
    { GetChefStdout: { answerBytes: OUTPUT_BYTES }, GetChefStderr: { answerBytes: OUTPUT_BYTES } },
  );
}

function nodeRoutes({ pushJobs, organizations }: ChefRouteDeps, { authorize }: Authorizer): Route[] {
  const { ListChefNodeStates, GetChefNodeState } = chefContracts;

  async function availabilityOf(servers: readonly string[]) {
    const rows = await pushJobs.nodeStates(servers);
    return new Map(rows.map((row) => [row.server_uuid, row]));
  }

  return bind(
    { ListChefNodeStates, GetChefNodeState },
    {
      async ListChefNodeStates(context) {
        const { organization } = await authorize(context, 'read');
        const nodes = await organizations.allNodes(organization);
        const states = await availabilityOf(nodes.map(({ serverUuid }) => serverUuid));
        return ok(nodes.map(({ name, serverUuid }) => toChefNodeState(name, states.get(serverUuid))));
      },
      async GetChefNodeState(context) {
        const { organization } = await authorize(context, 'read');
        const { node: name } = context.params;
        const node = (await organizations.nodesOf(organization, [name])).get(name);
        if (node === undefined || typeof node === 'string') return ok(toChefNodeState(name, undefined));
        const states = await availabilityOf([node.serverUuid]);
        return ok(toChefNodeState(name, states.get(node.serverUuid)));
      },
    },
    { ListChefNodeStates: { answerBytes: JOB_BYTES } },
  );
}

function configRoutes(deps: ChefRouteDeps, { baseUrl }: Authorizer): Route[] {
  const { GetChefConfig, GetChefConnect } = chefContracts;

  async function configOf(context: OrganizationContext<{ node: string }>) {
    const requestor = await deps.organizations.requestor(context.actor, context.params.organization);
    return ok(
      await nodeConfig(deps, {
        requestor,
        node: context.params.node,
        baseUrl: baseUrl(context),
        accept: context.header('Accept'),
      }),
    );
  }

  return bind(
    { GetChefConfig, GetChefConnect },
    {
      async GetChefConfig(context) {
        const { node, ccpk } = context.params;
        if (node !== '') checkCcpk(ccpk);
        return configOf(context);
      },
      GetChefConnect: configOf,
    },
  );
}

function feedRoutes({ feeds }: ChefRouteDeps, { authorize, jobIn }: Authorizer): Route[] {
  const { FollowChefJobs, FollowChefJob } = chefContracts;

  const follower = (authorized: Authorized, { header, signal }: Pick<RequestContext<never>, 'header' | 'signal'>) => ({
    organization: authorized.organization,
    requestor: authorized,
    lastEventId: header('Last-Event-ID'),
    withContents: maySeeContents(authorized),
    signal,
  });

  return bind(
    { FollowChefJobs, FollowChefJob },
    {
      async FollowChefJobs(context) {
        const authorized = await authorize(context, 'read', EVENTS_TYPE);
        const events = await feeds.followOrganization(follower(authorized, context));
        return { status: 200 as const, events, headers: UNBUFFERED };
      },
      async FollowChefJob(context) {
        const authorized = await authorize(context, 'read', EVENTS_TYPE);
        const job = await jobIn(authorized, context.params.id);
        return {
          status: 200 as const,
          events: feeds.followJob(job, follower(authorized, context)),
          headers: UNBUFFERED,
        };
      },
    },
    { FollowChefJobs: { answerBytes: STREAM_BYTES }, FollowChefJob: { answerBytes: STREAM_BYTES } },
  );
}

/** A token sees here what it sees on /push-jobs. */
const maySeeContents = ({ kind, actor }: { kind: string; actor: Actor }): boolean =>
  kind !== 'token' || hasRight(actor, 'task-contents');

function checkIsJson(contentType: string | undefined): void {
  const type = contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (type !== '' && type !== JSON_TYPE) throw new NotJsonError(type.slice(0, 100));
}

/** Chef's clients send `ccpk`, a key of the node. Only its absence is an error here. */
function checkCcpk(ccpk: string | undefined): void {
  if (ccpk === undefined || ccpk === '') throw new CnapiError('InvalidParameters', 400, 'Missing ccpk');
  if (ccpk.length !== 40) throw new CnapiError('Unauthorized', 401, 'Bad ccpk');
}

/** The task may have been deleted; its job is kept longer. */
function taskOf(tasks: Pick<Tasks, 'get'>, id: string) {
  return tasks.get(id).catch((error: unknown) => {
    if (error instanceof CnapiError && error.statusCode === 404) return undefined;
    throw error;
  });
}

function unlessEnded(error: unknown): void {
  if (!(error instanceof PushJobEndedError)) throw error;
}
