/**
 * Carries out `agent_install` for a server that speaks only Ur (agent-installation.ts has the
 * states): has Ur run the script, and waits for a session of the agent, which may be with any
 * instance. Called by `ur-servers.ts`.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { isTemporary, messageOf } from '../../platform/errors.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { LegacyAgentTask } from '../legacy/legacy-agent-api.ts';
import { failure, type PostedEnd } from '../legacy/task-answer.ts';
import { kindOfAgent } from '../roster/status/authority-row.ts';
import { readRow } from '../roster/status/roster-store.ts';
import {
  type AgentToInstall,
  agentCameUp,
  agentNotConnected,
  askForLog,
  buildInstallation,
  installedVersion,
  notConfigured,
  reasonNotInstallable,
} from './agent-installation.ts';
import { replyLost, type UrReply } from './execution.ts';
import type { UrAgentSettings } from './settings.ts';

interface AgentInstallerDeps {
  database: Queryable;
  settings: UrAgentSettings | undefined;
  /** Has Ur run this once; an end if there is no reply. */
  run(message: JsonObject, waitMs: number): Promise<{ reply: UrReply } | PostedEnd>;
  clock: Clock;
}

const PROGRAM = path.join(import.meta.dirname, 'install-agent.mjs');
const LOOK_EVERY_MS = 500;
const LOG_WITHIN_MS = 10_000;

export async function installAgent(
  deps: AgentInstallerDeps,
  { serverUuid, params }: Pick<LegacyAgentTask, 'serverUuid' | 'params'>,
  { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
): Promise<PostedEnd> {
  const { settings, run } = deps;
  if (settings === undefined) return notConfigured;
  const refusal = reasonNotInstallable(params);
  if (refusal !== undefined) return refusal;
  let agent: AgentToInstall;
  try {
    const [key, program] = await Promise.all([readFile(settings.key, 'utf8'), readFile(PROGRAM, 'utf8')]);
    agent = { ...settings, key, program };
  } catch (error) {
    return failure('NeedsAgent', `The key of urAgent cannot be read: ${messageOf(error)}; nothing was sent`);
  }
  const ran = await run(buildInstallation(serverUuid, params, agent), timeoutMs);
  if ('outcome' in ran) return ran;
  const installed = installedVersion(ran.reply);
  if ('outcome' in installed) return installed;
  if (await isLinkedWithin(deps, { serverUuid, withinMs: agent.withinMs, signal }))
    return agentCameUp(installed.version);
  if (signal.aborted) return replyLost('the instance that waited for the agent stopped');
  const log = await run(askForLog(agent), LOG_WITHIN_MS);
  return agentNotConnected(agent, 'reply' in log ? log.reply : undefined);
}

async function isLinkedWithin(
  { database, clock }: AgentInstallerDeps,
  { serverUuid, withinMs, signal }: { serverUuid: string; withinMs: number; signal: AbortSignal },
): Promise<boolean> {
  const endsAt = clock.now() + withinMs;
  for (;;) {
    const row = await readRow(database, serverUuid).catch((error: unknown) => {
      if (isTemporary(error)) return undefined;
      throw error;
    });
    if (row !== undefined && kindOfAgent(row) === 'linked') return true;
    if (signal.aborted || clock.now() >= endsAt) return false;
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
}
