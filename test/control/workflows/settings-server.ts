/**
 * A server with a real agent that keeps its settings in a real directory, and runs real programs.
 * Its machine only records that it is given another name. For NICs it is a simulated one, because
 * not every machine that runs tests has some.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import type { AgentDeps } from '../../../lib/agent/agent.ts';
import { catalogueOf } from '../../../lib/agent/catalogue.ts';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { SettingsKeeper, settingsSlotOf } from '../../../lib/agent/settings/settings-keeper.ts';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { AllowedWork } from '../../../lib/protocol/allowed-work.ts';
import type { TestApp } from '../../support/apps.ts';
import { RebootingServer } from './rebooting-server.ts';

interface SettingsPlan {
  machine?: 'linux' | 'simulated';
  needsSetup?: boolean;
  allowSetup?: boolean;
  resetProgram?: string;
  /** What its sysinfo says that its agent does; absent: nothing, as older agents. */
  allows?: readonly AllowedWork[];
}

interface SettingsServer {
  serverUuid: string;
  shown: RebootingServer['shown'];
  settings: SettingsKeeper;
  /** The names that its machine was given. */
  names: string[];
}

export async function settingsServer(
  t: Pick<Test, 'teardown'>,
  apps: readonly TestApp[],
  { machine: kind = 'linux', needsSetup = false, allowSetup = false, resetProgram, allows }: SettingsPlan = {},
): Promise<SettingsServer> {
  const serverUuid = random.uuid();
  // Not t.testdir(), which a test has once.
  const data = await mkdtemp(join(tmpdir(), 'cnapi-settings-'));
  t.teardown(() => rm(data, { recursive: true, force: true }));
  const runDirectory = join(data, 'run');
  await mkdir(runDirectory);
  const files = recordFiles(join(data, 'settings'), settingsSlotOf);
  const settings = await SettingsKeeper.open({ files, needsSetup, log });
  const about = { clock, random, serverUuid, agentVersion: '1.0.0', settings };
  const machine =
    kind === 'linux'
      ? await openLinuxMachine({ ...about, runDirectory, allows })
      : new SimulatedMachine({ ...about, number: 1, sysinfoSize: 'small' });
  const names: string[] = [];
  machine.rename = async (name) => void names.push(name);
  const services = { machine, settings, setupRules: { allowsSetup: allowSetup, resetProgram } };
  const further: Partial<AgentDeps> = { serverUuid, services, tasks: catalogueOf(services) };
  const server = await RebootingServer.start(t, apps, further);
  return { serverUuid, settings, names, shown: (isSo) => server.shown(isSo) };
}
