/**
 * `cnapi agents upgrade`: installs a version of the agent on servers, wave by wave. Each server
 * gets a task, which ends when its new agent has come up or was rolled back. Nothing but the tasks
 * is stored: a run that was ended is continued by the same command, because servers with the
 * version are skipped.
 */

import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import { shownSource, sourceUrl } from '../images/source-url.ts';
import type { Context } from '../invocation/context.ts';
import { findTargets, readServers, type TargetOptions } from '../lookup/targets.ts';
import { createLabelOf } from '../output/reports.ts';
import { endOfTask, errorOf } from '../output/task-end.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { buildErrorReport, errorReportText } from '../terminal/error-report.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { sortByName } from '../terminal/name-order.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { taskEnd } from '../vms/vm-task.ts';
import { failedServers } from './failed-servers.ts';
import {
  agentVersionOf,
  parseWave,
  planUpgrade,
  serversToUpgrade,
  type UpgradePlan,
  versionInName,
} from './upgrade-plan.ts';

export interface AgentUpgradeOptions extends TargetOptions {
  package?: string;
  to?: string;
  wave?: string;
  haltOn?: string;
  downgrade?: boolean;
  retry?: boolean;
  dryRun?: boolean;
}

interface Upgrade {
  source: string;
  version: string;
  haltOn: number;
  downgrade: boolean;
  retry: boolean;
}

/** Tasks that this program follows at a time. */
const FOLLOWED = 50;
/** Time for the download, three starts and the trial. */
const TASK_MS = 30 * 60_000;

export async function upgradeAgents(
  context: Context,
  names: readonly string[],
  options: AgentUpgradeOptions,
): Promise<number> {
  const upgrade = upgradeOf(options);
  const wave = parseWave(options.wave ?? '10%');
  const targets = await readServers(context, await findTargets(context, names, options));
  const servers = await withVersions(context, targets);
  const failed = await failedServers(context.client, serversToUpgrade(servers, upgrade.version), upgrade.version);
  const plan = planUpgrade(servers, { version: upgrade.version, wave, failed });
  showPlan(context, plan, { upgrade, isDryRun: options.dryRun === true });
  if (options.dryRun === true) return EXIT.ok;
  return new UpgradeRun(context, plan, upgrade).run();
}

/** @throws UsageError */
function upgradeOf({ package: given, to, haltOn, downgrade = false, retry = false }: AgentUpgradeOptions): Upgrade {
  if (given === undefined)
    throw new UsageError('--package is missing: the URL of a package, or its path on the servers');
  const source = sourceUrl(given);
  const version = to ?? versionInName(source);
  if (version === undefined)
    throw new UsageError(
      `The name of ${shownSource(given)} does not end in -VERSION.tar; say with --to which version it has`,
    );
  return { source, version, haltOn: haltOn === undefined ? 1 : parseCount(haltOn, '--halt-on'), downgrade, retry };
}

/** In order of name, with the version that each agent has reported. */
async function withVersions({ client }: Context, targets: readonly NamedServer[]): Promise<NamedServer[]> {
  const wanted = new Set(targets.map(({ uuid }) => uuid));
  const found: NamedServer[] = [];
  for await (const server of client.allServers({ extras: 'status,sysinfo' }))
    if (wanted.has(server.uuid)) found.push(server);
  const named = found.map((server) => ({ server, server_uuid: server.uuid, name: server.hostname ?? '' }));
  return sortByName(named).map(({ server }) => server);
}

function showPlan(
  { output }: Context,
  { upToDate, away, withoutAgent, waves }: UpgradePlan,
  { upgrade: { version }, isDryRun }: { upgrade: Upgrade; isDryRun: boolean },
): void {
  const uuids = (servers: readonly NamedServer[]) => servers.map(({ uuid }) => uuid);
  if (output.json) {
    const skipped = { up_to_date: uuids(upToDate), away: uuids(away), without_agent: uuids(withoutAgent) };
    if (isDryRun) output.document({ version, ...skipped, waves: waves.map(uuids) });
    return;
  }
  const all = waves.flat();
  output.note(
    `${count(all.length, 'server')} to upgrade to ${version} in ${count(waves.length, 'wave')}; ${upToDate.length} have it, ${away.length} are not running${noAgent(withoutAgent)}`,
  );
  if (!isDryRun) return;
  const labelOf = createLabelOf(all);
  for (const [index, wave] of waves.entries())
    for (const server of wave)
      output.line(`wave ${index + 1}: ${labelOf(server)} has ${agentVersionOf(server) ?? 'an unknown version'}`);
}

/** Servers that speak Ur are rare. */
const noAgent = ({ length }: readonly NamedServer[]): string =>
  length === 0 ? '' : `, ${length} without an agent that could install it (not set up)`;

const count = (number: number, what: string): string => `${number} ${what}${number === 1 ? '' : 's'}`;

class UpgradeRun {
  readonly #context: Context;
  readonly #plan: UpgradePlan;
  readonly #upgrade: Upgrade;
  readonly #labelOf: (server: NamedServer) => string;
  #done = 0;
  #failed = 0;

  constructor(context: Context, plan: UpgradePlan, upgrade: Upgrade) {
    this.#context = context;
    this.#plan = plan;
    this.#upgrade = upgrade;
    this.#labelOf = createLabelOf(plan.waves.flat());
  }

  /** Returns the exit code. A signal ends the wait; tasks that run continue. */
  async run(): Promise<number> {
    const { output } = this.#context;
    const stopped = Promise.withResolvers<number>();
    const stop = onEndingSignal((signal) => {
      output.complain('tasks that have begun continue; the same command continues the upgrade');
      stopped.resolve(exitCodeOfSignal(signal));
    });
    try {
      return await Promise.race([this.#waves(), stopped.promise]);
    } finally {
      stop();
    }
  }

  async #waves(): Promise<number> {
    const { output } = this.#context;
    const { waves, away, withoutAgent } = this.#plan;
    for (const [index, wave] of waves.entries()) {
      if (!output.json) output.note(`wave ${index + 1} of ${waves.length}: ${count(wave.length, 'server')}`);
      const places = new Semaphore(FOLLOWED);
      await Promise.all(wave.map((server) => places.run(() => this.#one(server, index + 1))));
      if (this.#isHalted) break;
    }
    const left = waves.flat().length - this.#done - this.#failed;
    const halted = this.#isHalted ? ', halted' : '';
    output.note(
      `${this.#done} upgraded, ${this.#failed} failed, ${left} not begun, ${away.length} not running${noAgent(withoutAgent)}${halted}`,
    );
    return this.#failed + left + away.length + withoutAgent.length === 0 ? EXIT.ok : EXIT.failed;
  }

  get #isHalted(): boolean {
    return this.#failed >= this.#upgrade.haltOn;
  }

  async #one(server: NamedServer, wave: number): Promise<void> {
    if (this.#isHalted) return;
    const failure = await this.#install(server);
    if (failure === undefined) this.#done += 1;
    else this.#failed += 1;
    const { output } = this.#context;
    const [from, to] = [agentVersionOf(server) ?? null, this.#upgrade.version];
    const { uuid: server_uuid, hostname } = server;
    const outcome = failure === undefined ? 'upgraded' : 'failed';
    if (output.json) output.record({ wave, server_uuid, hostname, outcome, from, to, error: failure ?? null });
    else if (failure === undefined) output.line(`${this.#labelOf(server)}: ${from ?? 'unknown'} -> ${to}`);
    else output.complain(`${this.#labelOf(server)}: ${escapeControls(failure)}`);
  }

  /** Returns why it failed. @throws an error that is not of this server */
  async #install({ uuid }: NamedServer): Promise<string | undefined> {
    const { client } = this.#context;
    const { source, version, downgrade, retry } = this.#upgrade;
    const params = {
      package_file: source,
      package_name: 'cn-agent',
      ...(downgrade && { downgrade }),
      ...(retry && { retry }),
    };
    try {
      const id = await client.createTask({
        serverUuid: uuid,
        task: 'agent_install' satisfies TaskName,
        params,
        timeoutMs: TASK_MS,
        idempotencyKey: this.#context.random.uuid(),
      });
      const end = endOfTask(await taskEnd(this.#context, id));
      const failure = errorOf(end);
      if (failure !== undefined) return `${failure}; cnapi task ${id}`;
      const installed = (end.result as { version?: unknown } | undefined)?.version;
      return installed === version ? undefined : `the package has version ${String(installed)}, and not ${version}`;
    } catch (error) {
      if (error instanceof ApiError || error instanceof NoAnswerError) return errorReportText(buildErrorReport(error));
      throw error;
    }
  }
}
