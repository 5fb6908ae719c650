/** Noderoles: roles bound to servers, as the annealer drives them (docs/annealer.md). */
import { z } from 'zod';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import { boundedText, integer, MAX_LIST, object, uuid, uuidArray } from './contract/rules.ts';

export const NODEROLE_STATES = ['proposed', 'blocked', 'todo', 'transition', 'active', 'error'] as const;
export type NoderoleState = (typeof NODEROLE_STATES)[number];

/** Servers that one request binds. */
const MAX_BINDINGS = 1_000;

const tag = 'annealer';
const data = () => z.record(z.string(), z.unknown());

const noderoleFields = {
  uuid: uuid(),
  role: z.string(),
  server_uuid: uuid(),
  deployment: uuid(),
  state: z.enum(NODEROLE_STATES),
  cohort: z.int().describe('0 without parents, otherwise more than that of any parent'),
  run_count: z.int().describe('Runs that have succeeded'),
  failures: z.int().describe('Runs that have failed since the last success, commit or retry'),
  blocked_by: uuid().optional().describe('The noderole in error because of which it is blocked'),
  error: answer({ code: z.string(), message: z.string() })
    .optional()
    .describe('Of its last run, if that failed; callers that may not read contents of tasks see the code only'),
  state_since: z.string(),
};

const noderole = answer(noderoleFields).meta({ id: 'Noderole' });

const neighbour = answer({
  uuid: uuid(),
  role: z.string(),
  server_uuid: uuid(),
  state: z.enum(NODEROLE_STATES),
  is_order_only: z.boolean().describe('The child runs after the parent, and does not require it'),
}).meta({ id: 'NoderoleNeighbour' });

const whole = answer({
  ...noderoleFields,
  explanation: z.string().describe('Why it is in its state, and what takes it further'),
  data: data().describe('What is committed'),
  proposed_data: data().optional().describe('What the next commit makes its data'),
  wall: data().describe('What its last run returned and was not sent'),
  parents: z.array(neighbour).describe('At most 200'),
  children: z.array(neighbour).describe('At most 200'),
  run: answer({ uuid: uuid(), task_id: uuid().optional(), started_at: z.string() }).optional(),
  withheld: z.boolean().optional().describe('Data is left out: it takes a role that may run tasks'),
}).meta({ id: 'NoderoleDetails' });

export type Noderole = Known<z.output<typeof noderole>>;
export type NoderoleAnswer = Known<z.output<typeof whole>>;

const DEPLOYMENT = 'b5e7c0de-1a2b-4c3d-8e4f-5a6b7c8d9e0f';
const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

const noderoleExample: Noderole = {
  uuid: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  role: 'web',
  server_uuid: SERVER,
  deployment: DEPLOYMENT,
  state: 'todo',
  cohort: 1,
  run_count: 0,
  failures: 0,
  state_since: '2030-01-01T00:00:00.000Z',
};

const wholeExample: NoderoleAnswer = {
  ...noderoleExample,
  explanation: 'due; the annealer begins its run next',
  data: { port: 80 },
  wall: {},
  parents: [],
  children: [],
};

const ofNoderole = { uuid: uuid().describe('Uuid of the noderole') };
const ofDeployment = { uuid: uuid().describe('Uuid of the deployment') };
const missing = { 404: errorResponse('No such noderole', 'ResourceNotFound') };
const shared = { tag, origin: 'own', preconditions: [] } as const;

export const annealerContracts = contracts({
  BindRole: {
    ...shared,
    method: 'POST',
    path: '/deployments/:uuid/noderoles',
    summary:
      'Binds a role to servers, with the roles that it requires. They are proposed until the deployment is committed',
    params: z.object({
      ...ofDeployment,
      role: boundedText(63).describe('The name of the role'),
      servers: uuidArray(MAX_BINDINGS).describe('Uuids of the servers'),
      data: object().optional().describe('Proposed data of the noderoles of this role'),
    }),
    responses: {
      200: {
        description: 'Bound. A role is bound to a server once: what was bound already is answered as it is',
        schema: answer({
          noderoles: z.array(noderole).describe('Of this role, in the order of the servers'),
          created: z.int().describe('New noderoles, those of required roles included'),
        }).meta({ id: 'BoundRoles' }),
        example: { noderoles: [{ ...noderoleExample, state: 'proposed' }], created: 2 },
      },
      404: errorResponse('No such deployment, or no such server', 'ResourceNotFound'),
      409: errorResponse(
        'RoleNotBindable: the role, or one that it requires, does not exist or is abstract; ConflictingRoles: the server has a role that excludes it; NoderolesChanged: other changes came first several times',
        'RoleNotBindable',
        'ConflictingRoles',
        'TooManyNoderoles',
        'NoderolesChanged',
      ),
    },
  },
  CommitDeployment: {
    ...shared,
    method: 'POST',
    path: '/deployments/:uuid/commit',
    summary: 'Commits what is proposed in a deployment, all of it or nothing. Unchanged noderoles keep their state',
    params: z.object({ ...ofDeployment }),
    responses: {
      200: {
        description: 'Committed',
        schema: answer({
          committed: z.int().describe('Noderoles that were new or have other data'),
          due: z.int().describe('Those among them that can run now'),
        }).meta({ id: 'CommittedDeployment' }),
        example: { committed: 12, due: 3 },
      },
      404: errorResponse('No such deployment', 'ResourceNotFound'),
    },
  },
  ListNoderoles: {
    ...shared,
    method: 'GET',
    path: '/noderoles',
    summary: 'Lists noderoles in the order in which they run, page by page',
    params: z.object({
      deployment: uuid().optional().describe('Only those of this deployment'),
      server_uuid: uuid().optional().describe('Only those of this server'),
      role: boundedText(63).optional().describe('Only those of the role with this name'),
      state: z
        .enum(NODEROLE_STATES, `value is not ${NODEROLE_STATES.join(', ')}`)
        .optional()
        .describe('Only those in this state'),
      limit: integer('limit', 1, MAX_LIST).optional().describe(`At most this many; ${MAX_LIST} when absent`),
      after: boundedText(100).optional().describe('The page after this: the `next` of the page before'),
    }),
    responses: {
      200: {
        description: 'OK',
        schema: answer({
          noderoles: z.array(noderole),
          next: z.string().optional().describe('Ask for the page after this; absent on the last page'),
        }).meta({ id: 'Noderoles' }),
        example: { noderoles: [noderoleExample] },
      },
    },
  },
  GetNoderole: {
    ...shared,
    method: 'GET',
    path: '/noderoles/:uuid',
    summary: 'One noderole: why it is in its state, its data and its neighbours',
    params: z.object({ ...ofNoderole }),
    responses: { 200: { description: 'OK', schema: whole, example: wholeExample }, ...missing },
  },
  UpdateNoderole: {
    ...shared,
    method: 'POST',
    path: '/noderoles/:uuid',
    summary: 'Proposes data for a noderole. It takes effect at the next commit of its deployment',
    params: z.object({ ...ofNoderole, data: object().describe('All of its data, not only what changes') }),
    responses: { 200: { description: 'Proposed', schema: whole, example: wholeExample }, ...missing },
  },
  RetryNoderole: {
    ...shared,
    method: 'POST',
    path: '/noderoles/:uuid/retry',
    summary: 'Tries a noderole in error again. What it blocks runs when it succeeds',
    params: z.object({ ...ofNoderole }),
    responses: {
      200: { description: 'Due again', schema: whole, example: wholeExample },
      ...missing,
      409: errorResponse('It is not in error, or a parent is not active', 'NoderoleTransition'),
    },
  },
  ProposeNoderole: {
    ...shared,
    method: 'POST',
    path: '/noderoles/:uuid/propose',
    summary: 'Takes a noderole out of the graph until the next commit of its deployment, which runs it again',
    params: z.object({ ...ofNoderole }),
    responses: { 200: { description: 'Proposed', schema: whole, example: wholeExample }, ...missing },
  },
  DeleteNoderole: {
    ...shared,
    method: 'DELETE',
    path: '/noderoles/:uuid',
    summary: 'Deletes a noderole that no other requires. Its server keeps what its runs have done',
    params: z.object({ ...ofNoderole }),
    responses: {
      204: { description: 'Deleted' },
      ...missing,
      409: errorResponse('Others require it, or it runs', 'NoderoleInUse'),
    },
  },
});
