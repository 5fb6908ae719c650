/**
 * What commands did, by the lines they wrote, compared with what was recorded: none runs twice,
 * none starts or continues after its end, only finished commands are `complete`, and every failure
 * has a cause. docs/design.md I3.
 */

import { Findings } from '../findings.ts';
import type { Effect, Fault, Intent, StoredTask } from '../history.ts';
import { groupBy, type World } from '../world.ts';
import { CLOCKS_MS } from './tasks.ts';

interface Case {
  intent: Intent;
  task: StoredTask | undefined;
  lines: readonly Effect[];
}

export function commandsRunOnce(world: World): Findings {
  const found = new Findings('commands run once, before their end', 'commands');
  for (const { intent, task, lines } of commandsOf(world)) {
    const begins = lines.filter(({ event }) => event === 'begin');
    const { workload, token } = intent;
    const at = world.fromUptime(begins.at(-1)?.uptime ?? 0) || intent.at;
    const runs = () =>
      `${task?.id ?? token} began ${begins.length} times: ${begins.map(({ pid, agentPid, uptime }) => `process ${pid} of agent ${agentPid} at ${Math.round(world.fromUptime(uptime))}`).join(', ')}`;
    found.holds(begins.length <= 1, at, runs, workload);
    if (begins.length === 0) continue;
    const isKnown = task !== undefined && lines.every((line) => line.task === task.id);
    found.holds(isKnown, at, () => `${token} ran as ${begins[0]?.task}, which is not its task ${task?.id}`, workload);
    if (task !== undefined && task.endedAt !== null) endsInTime(world, found, { intent, task, lines });
  }
  return found;
}

function endsInTime(world: World, found: Findings, { intent, task, lines }: Case & { task: StoredTask }): void {
  const endedAt = world.fromWall(task.endedAt ?? 0);
  const begunAt = Math.max(
    ...lines.filter(({ event }) => event === 'begin').map(({ uptime }) => world.fromUptime(uptime)),
  );
  const lastAt = Math.max(...lines.map(({ uptime }) => world.fromUptime(uptime)));
  const late = (what: string, at: number) => () =>
    `${task.id} ${what} ${Math.round(at - endedAt)} ms after its end (${task.errorCode ?? task.outcome})`;
  found.holds(begunAt <= endedAt + CLOCKS_MS, begunAt, late('began', begunAt), intent.workload);
  // With its journal lost, an agent cannot end what the former one had started: the outcome is
  // unknown and reported as such.
  const isLost = ({ servers, codes }: Fault) => servers.includes(task.server) && codes.includes('OutcomeUnknown');
  const mayResumeUnderNewRun = world.faultsIn(begunAt, endedAt).some(isLost);
  found.holds(
    mayResumeUnderNewRun || lastAt <= endedAt + CLOCKS_MS,
    lastAt,
    late('continued', lastAt),
    intent.workload,
  );
}

export function outcomesAreReal(world: World): Findings {
  const found = new Findings('outcomes are real', 'commands');
  const cancelled = groupBy(
    world.ops.filter(({ op }) => op === 'cancel'),
    ({ task }) => task,
  );
  for (const each of casesOf(world)) {
    const { intent, task } = each;
    if (task === undefined || task.endedAt === null) continue;
    const at = world.fromWall(task.endedAt);
    if (task.outcome === 'complete') {
      const wrong = wrongCompletion(each as Case & { task: StoredTask });
      found.holds(wrong === undefined, at, () => `${task.id} is complete, and ${wrong}`, intent.workload);
    } else {
      const isAsked = (cancelled.get(task.id) ?? []).some(({ askedAt }) => askedAt <= at + CLOCKS_MS);
      const text = () =>
        `${task.id} failed with ${task.errorCode}, which nothing caused (${each.lines.map(({ event }) => event).join(', ') || 'it wrote no line'})`;
      found.holds(hasCause(world, each as Case & { task: StoredTask }, isAsked), at, text, intent.workload);
    }
  }
  return found;
}

function wrongCompletion({ intent, task, lines }: Case & { task: StoredTask }): string | undefined {
  if (intent.failure !== undefined) return `it should have failed with ${intent.failure}`;
  if (intent.token === undefined) return undefined;
  const ends = lines.filter(({ event }) => event === 'end');
  if (ends.length !== 1) return `its command ended ${ends.length} times`;
  const exits = [ends[0]?.exitCode, task.exitCode, intent.exitCode];
  if (new Set(exits).size > 1)
    return `its exit code is ${exits[0]} in its line, ${exits[1]} as recorded, ${exits[2]} as requested`;
  return task.stdout === `${intent.token}\n` ? undefined : `its recorded output is ${JSON.stringify(task.stdout)}`;
}

function hasCause(world: World, { intent, task }: Case & { task: StoredTask }, isCancelAsked: boolean): boolean {
  const code = task.errorCode ?? '';
  if (code === intent.failure) return true;
  if (code === 'Cancelled') return isCancelAsked;
  const window = world.faultsIn(world.fromWall(task.createdAt) - CLOCKS_MS, world.fromWall(task.endedAt ?? 0));
  return window.some(({ servers, codes }) => servers.includes(task.server) && codes.includes(code));
}

function commandsOf(world: World): Case[] {
  return casesOf(world).filter(({ intent }) => intent.token !== undefined);
}

function casesOf(world: World): Case[] {
  const byKey = new Map(world.evidence.stored.tasks.map((task) => [task.key, task]));
  const lines = groupBy(world.evidence.effects, ({ token }) => token);
  return world
    .entries('intent')
    .map((intent) => ({ intent, task: byKey.get(intent.key), lines: lines.get(intent.token ?? '') ?? [] }));
}
