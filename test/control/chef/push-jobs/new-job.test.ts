/** Which jobs an organization accepts, and what they become. */
import t from 'tap';
import type { ChefJobBody } from '../../../../lib/control/chef/push-jobs/job-body.ts';
import { buildPushJob } from '../../../../lib/control/chef/push-jobs/new-job.ts';
import type { NodeLookup } from '../../../../lib/control/organizations/organizations.ts';
import { neededGroups, type Requestor } from '../../../../lib/control/organizations/requestor.ts';
import type { Organization } from '../../../../lib/protocol/api/documents/organizations.ts';

const ACME = { uuid: 'acme-uuid', name: 'acme' } as Organization;
const ALICE: Requestor = {
  name: 'alice',
  kind: 'user',
  groups: new Set(['ops']),
  needs: neededGroups(new Set()),
  actor: { name: "user 'alice' of 'acme'", roles: [] },
};
const BODY: ChefJobBody = {
  command: 'chef-client',
  nodes: ['web'],
  quorum: 1,
  runTimeoutMs: 5_000,
  user: undefined,
  dir: undefined,
  env: undefined,
  file: undefined,
  capture: false,
};
const node = (name: string, executors?: string[]): NodeLookup => ({
  name,
  serverUuid: `${name}-uuid`,
  executors: executors === undefined ? undefined : new Set(executors),
});
const NODES = new Map([
  ['web', node('web')],
  ['ours', node('ours', ['admins', 'ops'])],
  ['theirs', node('theirs', ['admins'])],
  ['twins', 'ambiguous' as const],
]);

interface Given {
  body?: Partial<ChefJobBody>;
  allowed?: string[] | null;
  requestor?: Requestor;
}

const jobOf = ({ body = {}, allowed = null, requestor = ALICE }: Given = {}) =>
  buildPushJob({
    id: 'a-job',
    body: { ...BODY, ...body },
    organization: { ...ACME, allowed_commands: allowed } as Organization,
    requestor,
    nodes: NODES,
  });

t.test('a job names who asked for it, and denies the nodes on which that user may not execute', async (t) => {
  const job = jobOf({ body: { nodes: ['web', 'ours', 'theirs'] } });
  t.match(job, { id: 'a-job', organization: 'acme-uuid', requestor: 'alice', actor: "user 'alice' of 'acme'" });
  t.same(job.nodes, [
    { serverUuid: 'web-uuid', name: 'web', isDenied: false },
    { serverUuid: 'ours-uuid', name: 'ours', isDenied: false },
    { serverUuid: 'theirs-uuid', name: 'theirs', isDenied: true },
  ]);
  const byToken = jobOf({ body: { nodes: ['theirs'] }, requestor: { ...ALICE, kind: 'token' } });
  t.equal(byToken.nodes[0]?.isDenied, false);
});

t.test('a list of allowed commands leaves a job neither environment nor directory', async (t) => {
  const allowed = ['chef-client'];
  const rows: [name: string, given: Given, refusal: string | undefined][] = [
    ['a command of the list', { allowed }, undefined],
    ['another command', { allowed, body: { command: 'reboot' } }, 'invalid command supplied'],
    ['any command without a list', { body: { command: 'reboot' } }, undefined],
    ['no command with an empty list', { allowed: [] }, 'invalid command supplied'],
    ['an environment', { allowed, body: { env: { A: '1' } } }, 'invalid environment value'],
    ['an empty environment', { allowed, body: { env: {} } }, undefined],
    ['an environment without a list', { body: { env: { A: '1' } } }, undefined],
    ['a directory', { allowed, body: { dir: '/tmp' } }, 'invalid directory supplied'],
    ['a directory without a list', { body: { dir: '/tmp' } }, undefined],
  ];
  for (const [name, given, message] of rows)
    if (message === undefined) t.doesNotThrow(() => jobOf(given), name);
    else t.throws(() => jobOf(given), { message, detail: /organization 'acme'/ }, name);
});

t.test('nodes that cannot be told are refused, ten of them by name', async (t) => {
  const detailOf = (nodes: string[]) => {
    try {
      jobOf({ body: { nodes } });
    } catch (error) {
      return (error as { detail?: string }).detail;
    }
    return undefined;
  };
  t.equal(detailOf(['web', 'none']), "organization 'acme' has no nodes of these names: none");
  t.equal(detailOf(['twins', 'web']), "several servers of organization 'acme' have each of these hostnames: twins");
  const names = Array.from({ length: 11 }, (_, index) => `n${index}`);
  t.match(detailOf(names), /: n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 1 more$/);
  t.match(detailOf(names.slice(0, 10)), /: n0, n1, n2, n3, n4, n5, n6, n7, n8, n9$/);
});
