/** A zone with a real agent that runs a real VM, for the clients of Docker's routes. */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { startZone } from '../../support/fleet-harness.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { call } from '../http/support.ts';

/** The VM runs this script. */
export async function startVm(t: Test, script: string) {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 1, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const url = zone.instances[0]?.url ?? '';
  const uuid = randomUUID();
  const vms = `/servers/${agent.serverUuid}/vms`;
  const post = async <Body>(path: string, body: object) => {
    const { status, text } = await call(url, 'POST', path, body);
    return { status, body: JSON.parse(text) as Body };
  };
  const internal_metadata = { 'docker:entrypoint': '["/bin/sh","-c"]', 'docker:cmd': JSON.stringify([script]) };
  await post(vms, { uuid, image_uuid: IMAGE, max_physical_memory: 64, internal_metadata });
  const isRunning = async () => (await call(url, 'GET', `/vms/${uuid}`)).text.includes('"state":"running"');
  await until(isRunning, 'the VM to run');
  return { zone, url, post, at: `${vms}/${uuid}` };
}
