/**
 * A server with a real agent that keeps its settings in a real directory. Its machine records that it is given
 * another name, and what it runs.
 */
import { join } from 'node:path';
import type { Test } from 'tap';
import type { AgentDeps } from '../../../lib/agent/agent.ts';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { SettingsKeeper, settingsSlotOf } from '../../../lib/agent/settings/settings-keeper.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { catalogueOf } from '../../../lib/agent/tasks/catalogue.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { TestApp } from '../../support/apps.ts';
import { RebootingServer } from './rebooting-server.ts';

interface SettingsPlan {
  needsSetup?: boolean;
}

export async function settingsServer(
  t: Pick<Test, 'teardown' | 'testdir'>,
  apps: readonly TestApp[],
  { needsSetup = false }: SettingsPlan = {},
): Promise<RebootingServer> {
  const serverUuid = random.uuid();
  const files = recordFiles(join(t.testdir(), serverUuid), settingsSlotOf);
  const settings = await SettingsKeeper.open({ files, needsSetup, log });
  const about = { number: 1, agentVersion: '1.0.0', sysinfoSize: 'small' } as const;
  const machine = new SimulatedMachine({ ...about, clock, random, serverUuid, settings });
  const services = { machine, settings };
  const further: Partial<AgentDeps> = { serverUuid, services, tasks: catalogueOf(services) };
  return RebootingServer.start(t, apps, further);
}
