/**
 * `npm run agent`: runs the agent of this machine until SIGTERM or SIGINT. Exit codes: 0 stopped, 1
 * error, 2 usage error (also when another agent uses the data directory).
 */
import { join, resolve } from 'node:path';
import { messageOf } from '../platform/errors.ts';
import { createLogger, type Logger } from '../platform/log.ts';
import { systemRandom as random } from '../platform/random.ts';
import { systemClock as clock } from '../platform/time/clock.ts';
import { VERSION as agentVersion } from '../platform/version.ts';
import { Agent } from './agent.ts';
import { catalogueOf } from './catalogue.ts';
import { type OpenedContainers, openContainers } from './containers/open-containers.ts';
import { allowTraversal, takeDataDirectory } from './data-directory.ts';
import type { Images } from './images/images.ts';
import { openImages } from './images/open-images.ts';
import { JournalFile } from './journal/journal-file.ts';
import { openHttpAccess } from './legacy/http-access.ts';
import { HttpPort } from './legacy/http-port.ts';
import { type AgentCredentials, openCredentials } from './link/credentials.ts';
import { createResolver } from './link/discovery.ts';
import { dialWebSocket } from './link/link-socket.ts';
import { Ticker } from './link/ticker.ts';
import { ownServerUuid as serverUuidOf } from './machine/identity.ts';
import { openLinuxMachine } from './machine/linux-machine.ts';
import { bootIdOf } from './machine/proc.ts';
import { AGENT_USAGE } from './option-table.ts';
import { type AgentOptions, allowedWork, asUsageError, parseAgentOptions } from './options.ts';
import { readPackageKeys } from './packages/package-keys.ts';
import { Packages } from './packages/packages.ts';
import { packagesSysinfo } from './packages/packages-sysinfo.ts';
import { type DrainRecord, PauseKeeper } from './pause/pause-keeper.ts';
import { runProgram, waitForSignal } from './program.ts';
import { type AllowedCommands, openAllowedCommands } from './push/allow-list.ts';
import { recordFiles } from './records/record-files.ts';
import { RecoveryKeeper, slotOf } from './recovery/recovery-keeper.ts';
import { SettingsKeeper, settingsSlotOf } from './settings/settings-keeper.ts';
import { AgentStreams } from './streams/agent-streams.ts';
import { AgentUsageError } from './usage-error.ts';
import { type CONFIRMED, STAGED, Trial } from './versions/trial.ts';
import { VersionsFile } from './versions/versions-file.ts';
import { vmRecords } from './vms/vm-record.ts';
import { Vms } from './vms/vms.ts';
import { openZfs } from './zfs/zfs.ts';

/** A new version must stay connected for this part of its trial. */
const TRIAL_PARTS = 10;

async function main(): Promise<void> {
  const options = parseAgentOptions(process.argv.slice(2), process.env);
  if (!options) return void process.stdout.write(AGENT_USAGE);
  const stopSignal = waitForSignal();
  const restart = Promise.withResolvers<void>();
  const requestRestart = () => {
    process.send?.(STAGED, () => undefined);
    restart.resolve();
  };
  const stop = await run(options, requestRestart);
  await Promise.race([stopSignal, launcherLost(), restart.promise]);
  await stop();
  process.exit(0);
}

/** Whether the launcher runs this agent: it has a channel to it. */
const isLaunched = process.send !== undefined;

function launcherLost(): Promise<void> {
  return new Promise((done) => {
    if (isLaunched && !process.connected) done();
    process.once('disconnect', done);
  });
}

async function run(options: AgentOptions, requestRestart: () => void): Promise<() => Promise<void>> {
  await using opened = new AsyncDisposableStack();
  const data = await takeDataDirectory(resolve(options.data));
  opened.defer(() => data.release());
  const serverUuid = await serverUuidOf(data.path, random, options.uuid);
  const log = createLogger('cn-agent', options.logLevel, { server_uuid: serverUuid });
  const credentials = credentialsFrom(options, data.path, log);
  const pushCommands = pushCommandsFrom(options.pushCommands, log);
  const journal = await JournalFile.open({ directory: data.path, clock, random, log });
  opened.defer(() => journal.close());
  const httpPort = await httpPortFor(options.http, data.path, { serverUuid, log });
  if (httpPort) opened.use(httpPort);
  await httpPort?.start();
  const versions = await VersionsFile.open(data.path, agentVersion);
  const trial = isLaunched && versions.versions.change.name === 'trial' ? trialOf(options, versions, log) : undefined;
  const packages = await packagesFor(options.packages, { data: data.path, versions, trial, requestRestart, log });
  if (packages) opened.use(packages);
  const containers = await containersFor(options.containers, data.path, log);
  if (containers) opened.use(containers);
  const recovery = options.encryptedZpool ? await openRecovery(data.path, log) : undefined;
  const settings = await openSettings(data.path, options, log);
  const machine = await openLinuxMachine({
    clock,
    serverUuid,
    agentVersion,
    runDirectory: data.runDirectory,
    bootFile: join(data.path, 'boot'),
    taskAddress: httpPort?.address,
    bootParameters: options.bootParameters,
    allows: allowedWork(options),
    containers: containers?.summary,
    packages: packages && {
      sysinfo: () => packagesSysinfo(packages),
      onChange: (listener) => packages.onChange(listener),
    },
    recovery,
    settings,
  });
  const kept = options.containers?.images;
  const images = kept && containers && (await openImages({ ...kept, ...containers, clock, log, data: data.path }));
  if (images) opened.use(images);
  const vms = containers && images && (await vmsFor(containers, { images, data: data.path, log }));
  if (vms) opened.use(vms);
  const zfs = await openZfs({
    allowed: options.zfs,
    vmUuids: () => vms?.list().map(({ uuid }) => uuid) ?? [],
    directories: () => [data.path, ...(containers?.mountedDirectories() ?? [])],
  });
  const streams = new AgentStreams({ clock, serverUuid, credentials });
  const { allowReboot, setupRules } = options;
  const services = { machine, vms, images, packages, recovery, settings, setupRules, zfs, streams };
  const pause = await openPause(data.path, log);
  const agent = new Agent({
    clock,
    random,
    log,
    journal,
    services,
    trial,
    pause,
    serverUuid,
    agentVersion,
    ticker: new Ticker({ clock }),
    dial: dialWebSocket(clock, credentials),
    credentials,
    resolve: createResolver(options.discovery, { clock, random }),
    tasks: catalogueOf(services),
    allowReboot,
    pushCommands,
    protocol: options.protocol,
    httpPort,
  });
  opened.use(agent);
  await agent.start();
  log.info(
    { data: data.path, journal: journal.state.journalId, version: agentVersion, pid: process.pid },
    'agent: started',
  );
  const held = opened.move();
  return async () => {
    log.info('agent: stopping');
    await held.disposeAsync();
  };
}

async function containersFor(options: AgentOptions['containers'], data: string, log: Logger) {
  if (options === undefined) return undefined;
  await allowTraversal(data);
  const opened = await openContainers({ ...options, clock, log, data, bootId: await bootIdOf() });
  log.info({ containers: opened.containers.list().length }, `agent: ${opened.summary}`);
  return opened;
}

async function vmsFor(
  opened: OpenedContainers,
  { images, data, log }: { images: Images; data: string; log: Logger },
): Promise<Vms> {
  const records = vmRecords(join(data, 'vms'));
  const vms = new Vms({ ...opened, clock, random, log, records, images });
  await vms.start();
  return vms;
}

function trialOf({ trialMs }: AgentOptions, versions: VersionsFile, log: Logger): Trial {
  const tell = (message: typeof CONFIRMED) => void process.send?.(message, () => undefined);
  return new Trial({ versions, log, stayMs: trialMs / TRIAL_PARTS, tell });
}

async function packagesFor(
  options: AgentOptions['packages'],
  parts: Pick<ConstructorParameters<typeof Packages>[0], 'data' | 'versions' | 'trial' | 'requestRestart' | 'log'>,
): Promise<Packages | undefined> {
  if (options === undefined) return undefined;
  const { keyFiles, ...allowed } = options;
  const keys = asUsageError(() => readPackageKeys(keyFiles));
  const packages = new Packages({ ...allowed, ...parts, keys, isLaunched, clock });
  await packages.start();
  return packages;
}

const openRecovery = (data: string, log: Logger): Promise<RecoveryKeeper> =>
  RecoveryKeeper.open({ files: recordFiles(join(data, 'recovery'), slotOf), log });

const openSettings = (data: string, { needsSetup }: AgentOptions, log: Logger): Promise<SettingsKeeper> =>
  SettingsKeeper.open({ files: recordFiles(join(data, 'settings'), settingsSlotOf), needsSetup, log });

async function openPause(data: string, log: Logger): Promise<PauseKeeper> {
  const files = recordFiles<DrainRecord>(join(data, 'pause'), ({ id }) => id);
  const pause = new PauseKeeper({ clock, log, bootId: await bootIdOf(), files });
  await pause.start();
  return pause;
}

async function httpPortFor(
  http: AgentOptions['http'],
  directory: string,
  { serverUuid, log }: { serverUuid: string; log: Logger },
): Promise<HttpPort | undefined> {
  if (http === undefined) return undefined;
  const { host, port, open, from } = http;
  const access = await openHttpAccess({ directory, open, from, log }).catch((error: unknown) => {
    throw new AgentUsageError(`--http-port: ${messageOf(error)}`, error);
  });
  return new HttpPort({ host, port, access, serverUuid, agentVersion, clock, random, log });
}

function credentialsFrom(options: AgentOptions, data: string, log: Logger): AgentCredentials {
  return asUsageError(() => openCredentials({ ...options.credentials, usualTokenFile: join(data, 'token') }, log));
}

function pushCommandsFrom(path: string | undefined, log: Logger): AllowedCommands | undefined {
  return path === undefined ? undefined : asUsageError(() => openAllowedCommands(path, log));
}

runProgram('cn-agent', main);
