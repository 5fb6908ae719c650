/** Jobs, nodes and events in Chef's form, from the rows of push jobs. */
import t from 'tap';
import { feedTime, parseJobEventId, toChefEvent, toStartEvent } from '../../../lib/control/chef/feeds/feed-shape.ts';
import {
  parseChefId,
  toChefJob,
  toChefNodeState,
  toListedChefJob,
} from '../../../lib/control/chef/push-jobs/job-shape.ts';
import { isAllowed } from '../../../lib/control/chef/push-jobs/new-job.ts';
import type { OrganizationJob } from '../../../lib/control/chef/push-jobs/organization-jobs-store.ts';
import { baseUrlOf, checkAccept } from '../../../lib/control/chef/routes/negotiation.ts';

const JOB: OrganizationJob = {
  id: 'c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f',
  command: 'chef-client',
  options: { user: undefined, dir: undefined, env: undefined, capture: false },
  hasFile: false,
  requestor: 'alice',
  nodeCount: 3,
  quorum: 2,
  runTimeoutMs: 3_600_000,
  status: 'running',
  lastEvent: 7,
  createdAt: new Date('2012-09-04T23:01:02.345Z'),
  stateSince: new Date('2012-09-04T23:17:56Z'),
  cursor: { at: '0', id: '' },
  createdAtUs: String(Date.parse('2012-09-04T23:01:02.345Z') * 1000 + 678),
  endedMs: null,
};
const FULL: OrganizationJob = {
  ...JOB,
  options: { user: 'deploy', dir: '/srv', env: { A: '1' }, capture: true },
  hasFile: true,
};

t.test('a job of a list has no nodes, and only the options that it was given', async (t) => {
  t.same(toListedChefJob(JOB, true), {
    id: 'c0ffee001a2b4c3d8e4f5a6b7c8d9e0f',
    command: 'chef-client',
    status: 'running',
    run_timeout: 3600,
    created_at: 'Tue, 04 Sep 2012 23:01:02 GMT',
    updated_at: 'Tue, 04 Sep 2012 23:17:56 GMT',
  });
  t.match(toListedChefJob(FULL, true), {
    user: 'deploy',
    dir: '/srv',
    env: { A: '1' },
    file_specified: true,
    capture_output: true,
  });
});

t.test('who may not run tasks sees neither command nor options', async (t) => {
  const shown = JSON.stringify([toListedChefJob(FULL, false), toStartEvent(FULL, false)]);
  t.notMatch(shown, /chef-client|deploy|srv|"A"/);
  t.match(toListedChefJob(FULL, false), { withheld: true, status: 'running' });
});

t.test('a single job has the names of its nodes by status, and its file if that was asked for', async (t) => {
  const nodes = [
    { state: 'running', names: ['NODE1', 'NODE5'] },
    { state: 'crashed', names: ['NODE6'] },
  ] as const;
  const details = { nodes: nodes.map((one) => ({ ...one, names: [...one.names] })), withContents: true };
  t.same(toChefJob(JOB, details).nodes, { running: ['NODE1', 'NODE5'], crashed: ['NODE6'] });
  t.match(toChefJob(FULL, details), { file_specified: true, file: undefined });
  t.match(toChefJob(FULL, { ...details, file: Buffer.from('é:\n') }), { file_specified: undefined, file: 'raw:é:\n' });
  t.match(toChefJob(FULL, { ...details, file: Buffer.from([255, 0]) }), { file: 'base64:/wA=' });
});

t.test('an id is accepted with and without dashes', async (t) => {
  t.equal(parseChefId('c0ffee001a2b4c3d8e4f5a6b7c8d9e0f'), JOB.id);
  t.equal(parseChefId('C0FFEE00-1A2B-4C3D-8E4F-5A6B7C8D9E0F'), JOB.id);
  for (const text of ['', 'x', `${JOB.id}0`, JOB.id.slice(1), '../..']) t.equal(parseChefId(text), undefined, text);
});

t.test('a node is online if its agent is, and available unless it is in rehab', async (t) => {
  const since = new Date('2012-09-04T23:17:56Z');
  const updated_at = 'Tue, 04 Sep 2012 23:17:56 GMT';
  for (const [state, status, availability] of [
    ['idle', 'online', 'available'],
    ['in-job', 'online', 'available'],
    ['rehab', 'online', 'unavailable'],
    ['down', 'offline', 'unavailable'],
  ] as const)
    t.same(toChefNodeState('FIONA', { state, since }), { node_name: 'FIONA', status, availability, updated_at });
  t.same(toChefNodeState('SHREK', undefined), { node_name: 'SHREK', status: 'offline', availability: 'unavailable' });
});

t.test('events of a job', async (t) => {
  t.same(toStartEvent(JOB, true), {
    id: 'job-1',
    name: 'start',
    data: {
      timestamp: '2012-09-04 23:01:02.345678Z',
      command: 'chef-client',
      capture: false,
      run_timeout: 3600,
      quorum: 2,
      node_count: 3,
      user: 'alice',
    },
  });
  t.match(toStartEvent(FULL, true).data, {
    job_user: 'deploy',
    dir: '/srv',
    env: { A: '1' },
    file_specified: true,
    capture: true,
  });
  const timestamp = '2012-09-04 23:01:02.345679Z';
  const atUs = String(Date.parse('2012-09-04T23:01:02.345Z') * 1000 + 679);
  t.same(toChefEvent({ number: 2, name: 'quorum_vote', node: 'web-1', status: 'success', atUs }), {
    id: 'job-2',
    name: 'quorum_vote',
    data: { timestamp, node: 'web-1', status: 'success' },
  });
  t.same(toChefEvent({ number: 3, name: 'quorum_succeeded', node: null, status: null, atUs }).data, { timestamp });
  t.equal(parseJobEventId('job-12'), 12);
  for (const id of [undefined, '', 'job-', 'job-x', 'org-1', 'job-1 ', 'job-9999999999'])
    t.equal(parseJobEventId(id), undefined);
  t.equal(feedTime(Date.parse('2012-09-04T23:17:56.007Z') * 1000 + 12), '2012-09-04 23:17:56.007012Z');
});

t.test('an organization allows whole commands, and beginnings', async (t) => {
  t.ok(isAllowed('anything', undefined));
  t.notOk(isAllowed('chef-client', []));
  t.ok(isAllowed('chef-client', ['chef-client']));
  t.notOk(isAllowed('chef-client; rm', ['chef-client']));
  t.ok(isAllowed('systemctl restart nginx', ['systemctl restart *']));
  t.notOk(isAllowed('systemctl stop nginx', ['systemctl restart *']));
  t.notOk(isAllowed('', ['chef-client']));
});

t.test('Accept names the type, its family or everything, and the most specific counts', async (t) => {
  for (const accept of [
    undefined,
    '*/*',
    'application/json',
    'text/html, application/*;q=0.5',
    'Application/JSON; v=1',
  ])
    t.doesNotThrow(() => checkAccept(accept, 'application/json'), accept ?? 'none');
  for (const accept of ['', 'text/html', 'application/xml, text/*', '*/*, application/json;q=0', 'json'])
    t.throws(() => checkAccept(accept, 'application/json'), { message: /the Accept header does not allow/ }, accept);
});

t.test('the address in a uri is the one that the caller used', async (t) => {
  for (const [host, forwardedProto, isTls, url] of [
    ['cnapi.example.com', undefined, false, 'http://cnapi.example.com'],
    ['cnapi.example.com:8081', undefined, false, 'http://cnapi.example.com:8081'],
    ['cnapi.example.com:80', undefined, false, 'http://cnapi.example.com'],
    ['cnapi.example.com:443', undefined, true, 'https://cnapi.example.com'],
    ['cnapi.example.com', 'https', false, 'https://cnapi.example.com'],
    ['cnapi.example.com:443', 'http', true, 'http://cnapi.example.com:443'],
    ['cnapi.example.com', 'ftp', false, 'http://cnapi.example.com'],
    ['[::1]:8081', undefined, false, 'http://[::1]:8081'],
    ['::1', undefined, false, 'http://[::1]'],
  ] as const)
    t.equal(baseUrlOf({ host, forwardedProto, isTls }), url);
});
