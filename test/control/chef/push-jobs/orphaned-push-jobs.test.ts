/** What becomes of jobs when their organization, or who started them, is deleted. */
import t from 'tap';
import { parseChefId } from '../../../../lib/control/chef/push-jobs/job-shape.ts';
import { OrphanedPushJobs } from '../../../../lib/control/chef/push-jobs/orphaned-push-jobs.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { endedJob } from '../../push/jobs.ts';
import { asked, created, ended, JOBS, startAcme } from '../acme.ts';
import { keyPair } from '../signatures/signed-api.ts';

t.test('the jobs of a deleted organization are aborted, and those of a deleted user go on', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const { a, b, acme, names } = await startAcme(t, 1, {}, recordingLogger(logged));
  const { publicKey, privateKey: key } = keyPair();
  const uuid = await created(a, '/users', { name: 'alice', organizations: [acme] });
  const keyUuid = await created(a, '/keys', { owner: uuid, public_key: publicKey });
  await created(a, '/groups', { name: 'admins', organization: acme, users: [uuid] });
  const signer = { key, userId: 'alice' };

  const order = { command: 'sleep 2', nodes: names.slice(0, 1) };
  const { id: first } = (await asked(a, 'POST', JOBS, { body: order, signer })).body;
  t.equal(await a.delete(`/keys/${keyUuid}`), 204);
  t.equal(await a.delete(`/users/${uuid}`), 204);
  t.equal((await asked(b, 'GET', JOBS, { signer })).status, 401);
  t.equal((await ended(b, first)).status, 'complete', "a job is the organization's");

  const long = { command: 'sleep 600' };
  const { id } = (await asked(a, 'POST', JOBS, { body: { ...order, ...long } })).body;
  const theirs = '/organizations/other/pushy/jobs';
  const kept = (await asked(a, 'POST', theirs, { body: { ...long, nodes: names.slice(-1) } })).body.id;
  t.equal(await a.delete(`/organizations/${acme}`), 204);
  t.equal((await asked(b, 'GET', JOBS)).status, 404);
  const job = await endedJob(b, parseChefId(id) ?? '');
  t.equal(job.status, 'aborted');
  const msg = 'push job: aborting, its organization has been deleted';
  t.hasStrict(
    logged.find((record) => record.msg === msg),
    { push_job: job.id, organization: acme },
  );
  t.match((await asked(b, 'GET', `${theirs}/${kept}`)).body.status, /^(voting|running)$/, 'of another organization');
  t.equal((await asked(b, 'PUT', `${theirs}/${kept}/abort`)).status, 200);
});

t.test('each job is aborted in the next look, also a single one, and a locked one delays no other', async (t) => {
  const clock = new ManualClock();
  let unfinished = [{ id: 'locked', organizationUuid: 'gone' }];
  const aborted: string[] = [];
  let isLocked = true;
  const jobs = new OrphanedPushJobs({
    organizations: { existing: async (uuids) => new Set(uuids.filter((uuid) => uuid !== 'gone')) },
    database: { query: async () => ({ rows: unfinished }) } as unknown as Queryable,
    pushJobs: {
      async abort(id) {
        if (id === 'locked' && isLocked) throw new DatabaseBusyError('locked');
        aborted.push(id);
        return {} as never;
      },
    },
    clock,
    log: silentLogger,
  });
  jobs.start();
  t.teardown(() => jobs.stop());
  unfinished.push({ id: 'kept', organizationUuid: 'acme' }, { id: 'other', organizationUuid: 'gone' });
  await clock.advance(10_000);
  t.same(aborted.splice(0), ['other']);
  isLocked = false;
  unfinished = unfinished.slice(0, 1);
  await clock.advance(10_000);
  t.same(aborted.splice(0), ['locked']);
  await jobs.stop();
  await clock.advance(20_000);
  t.same(aborted, []);
});
