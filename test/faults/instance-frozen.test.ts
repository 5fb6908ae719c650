import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import { until } from '../support/until.ts';

interface InstanceView {
  uuid: string;
  run: string;
}

faultTest('an instance that is frozen for 20 s and thawed causes no fault', {}, async ({ t, zone }) => {
  const frozen = await zone.holderOf(zone.agents[0]?.serverUuid ?? '');
  const other = zone.instances.find((instance) => instance !== frozen) ?? frozen;
  const runOfFrozen = async () => {
    const instances = (await (await fetch(`${other.url}/instances`)).json()) as InstanceView[];
    return instances.find(({ uuid }) => uuid === frozen.uuid)?.run;
  };
  const before = await runOfFrozen();
  frozen.program.freeze();
  await sleep(20_000);
  await until(async () => (await runOfFrozen()) === undefined);
  t.pass('meanwhile the others count its run as dead');
  frozen.program.thaw();
  await zone.ready(frozen);
  await until(async () => ![before, undefined].includes(await runOfFrozen()));
  t.pass('it continues with a new run');
  await sleep(10_000);
});
