/**
 * What a late holder of a workflow job writes of its server: nothing, once another one has carried
 * the job on.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { ServerChanges } from '../../../lib/control/workflows/server-changes.ts';
import {
  beginWorkflowStep,
  type HeldWorkflowJob,
  moveWorkflowJob,
  readHeldWorkflowJob,
} from '../../../lib/control/workflows/step-store.ts';
import { createWorkflowJob, WORKFLOW_DUTY } from '../../../lib/control/workflows/workflow-store.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';

const AT = { phase: 'chain', step: 0, tries: 0 } as const;

async function prepare(t: Test) {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock, log, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  const serverUuid = randomUUID();
  await servers.recordSysinfo(serverUuid, { UUID: serverUuid, Hostname: 'a', Setup: 'false' });
  const id = randomUUID();
  await createWorkflowJob(database, {
    ...{ id, name: 'server-update-nics', serverUuid, chain: ['update-nics', 'refresh-sysinfo'], onerror: [] },
    ...{ params: {}, maskedParams: undefined, requestHash: 'hash', requestId: undefined, actor: undefined },
  });
  const [duty] = await claimDuties(database, await liveRun(database), { kinds: [WORKFLOW_DUTY], limit: 1 });
  if (duty === undefined) throw new Error('the duty of the job was not claimed');
  await beginWorkflowStep(database, duty, { at: AT, facts: {}, task: undefined });
  const job = (await readHeldWorkflowJob(database, id)) as HeldWorkflowJob;
  const entry = { name: 'update-nics', result: 'OK', error: '' };
  return {
    ...{ servers, serverUuid, job, changes: new ServerChanges({ database, servers }) },
    carryOn: () => moveWorkflowJob(database, duty, { from: AT, to: { name: 'due', ...AT, step: 1 }, entry }),
    isSetUp: async () => (await servers.get(serverUuid))?.server.setup,
  };
}

t.test('the sysinfo that an agent answers is stored while the job is at its step', async (t) => {
  const { changes, job, serverUuid, isSetUp, carryOn } = await prepare(t);
  t.equal(await changes.keepSysinfo(job, { UUID: serverUuid, Setup: 'true' }), undefined);
  t.equal(await isSetUp(), true);
  t.ok(await carryOn());
  await t.rejects(changes.keepSysinfo(job, { UUID: serverUuid, Setup: 'false' }), { name: 'WorkflowJobMovedError' });
  t.equal(await isSetUp(), true, 'a late holder writes nothing');
});

t.test('why a sysinfo is not stored', async (t) => {
  const { changes, job, servers, serverUuid } = await prepare(t);
  t.equal(await changes.keepSysinfo(job, undefined), 'the agent answered without a sysinfo');
  t.match(await changes.keepSysinfo(job, { UUID: serverUuid, Hostname: '\0' }), /a sysinfo that/);
  t.match(await changes.keepSysinfo(job, { UUID: randomUUID() }), /is not the server's own/);
  await servers.remove(serverUuid, randomUUID());
  t.equal(await changes.keepSysinfo(job, { UUID: serverUuid }), `Server ${serverUuid} not found`);
  t.equal(await servers.get(serverUuid), undefined, 'it does not come back');
});
