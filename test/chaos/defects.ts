/**
 * Deliberate defects of the product, one at a time in a copy of it, and the rule that the checker
 * must find violated. A defect is given by the text that it replaces: if the product has changed
 * and the text does not occur exactly once, the defect must be rewritten.
 * `npm run chaos -- --defects`
 */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { guard } from '../../tools/processes/guardian.ts';
import { inChangedCopy, type TextChange } from '../support/product-text.ts';

export interface Defect {
  name: string;
  /** Faults that reveal it. */
  only: string[];
  /** The rule that must find it. */
  rule: string;
  changes: TextChange[];
}

const MINUTES = '1';

export const defects: readonly Defect[] = [
  {
    name: 'an agent starts a task again that an earlier process of it had started',
    only: ['agent killed'],
    rule: 'commands run once, before their end',
    changes: [
      {
        find: `.filter((task) => task.state === 'running');`,
        put: '.filter(() => false);',
      },
      {
        find: `if (task?.state !== 'accepted')`,
        put: `if (known === undefined || known.state === 'ended')`,
      },
    ],
  },
  {
    name: 'an end is acknowledged before it is recorded',
    only: ['cut off from Postgres'],
    rule: 'outcomes are real',
    changes: [
      {
        find: 'this.#add({ subject, end, acknowledge }, sizeOf(end));',
        put: 'acknowledge();\n    this.#add({ subject, end, acknowledge }, sizeOf(end));',
      },
    ],
  },
  {
    name: 'every inventory counts as if it contained all dispatched tasks',
    only: ['journal lost'],
    rule: 'each task ends once',
    changes: [
      {
        find: 'if (agent.known?.attempt === task.attempt && (',
        put: `if (agent.known === undefined) return { kind: 'goes-on', started: true };
  if (agent.known?.attempt === task.attempt && (`,
      },
    ],
  },
  {
    name: 'a task is accepted before it is stored',
    only: ['Postgres'],
    rule: 'nothing accepted is missing',
    changes: [
      {
        find: '? createTask(this.#deps.database, task)',
        put: `? (createTask(this.#deps.database, task).catch(() => undefined),
          Promise.resolve({ id: task.id, requestHash: task.requestHash, run: null }))`,
      },
    ],
  },
  {
    name: 'keys are not stored',
    only: ['clients to instance'],
    rule: 'a key gives one task',
    changes: [{ find: 'task.idempotencyKey ?? null,', put: 'null,' }],
  },
  {
    name: 'cancels do not reach the agent',
    only: ['Redis'],
    rule: 'cancels end',
    changes: [
      {
        find: 'if cardinality(due) = 0 then',
        put: 'if true then',
      },
    ],
  },
  {
    name: 'waits rely on the bus',
    only: ['Redis killed', 'Redis frozen', 'instance to Redis cut without FIN'],
    rule: 'waits end',
    changes: [
      {
        find: 'work, pauseMs,',
        put: "work: what === 'expired tickets' ? work : async () => {}, pauseMs,",
      },
    ],
  },
  {
    name: 'a release activates the last ticket instead of the first',
    only: ['clients to instance'],
    rule: 'locks are granted in order',
    changes: [
      {
        find: 'order by t.place limit 1;\n  if is_due',
        put: 'order by t.place desc limit 1;\n  if is_due',
      },
    ],
  },
  {
    name: 'a wait for an expired or released ticket is answered as if it were active',
    only: ['clients to instance'],
    rule: 'a lock has one holder',
    changes: [
      {
        find: 'throw new TicketWaitTimeoutError(ticketUuid, seconds);',
        put: 'return empty(204);',
      },
    ],
  },
  {
    name: 'silence is counted while the observer itself was stalled',
    only: ['instance frozen for a moment'],
    rule: 'a live server is never unknown',
    changes: [
      {
        find: 'if (elapsedMs > this.#checkMs * 2) return;',
        put: `if (elapsedMs > this.#checkMs * 2) {
      for (let countedMs = 0; countedMs < elapsedMs; countedMs += this.#checkMs)
        for (const listener of this.#tickListeners) listener(this.#checkMs);
      return;
    }`,
      },
    ],
  },
  {
    name: 'a silent agent is not noticed',
    only: ['agent frozen'],
    rule: 'a dead server becomes unknown in time',
    changes: [
      {
        find: 'if (silence.quietMs - tickMs >= limits.silenceMs)',
        put: 'if (silence.quietMs - tickMs >= 8 * limits.silenceMs)',
      },
    ],
  },
];

/** The number of defects that were not found. */
export async function findDefects(only: readonly string[], say: (text: string) => void): Promise<number> {
  let missed = 0;
  for (const defect of defects) {
    if (only.length > 0 && !only.some((text) => defect.name.includes(text))) continue;
    const found = await finds(defect);
    if (!found.isFound) missed += 1;
    say(`${found.isFound ? 'ok' : 'not ok'} ${defect.name}`);
    for (const line of found.lines) say(`    ${line}`);
  }
  return missed;
}

async function finds(defect: Defect): Promise<{ isFound: boolean; lines: string[] }> {
  return inChangedCopy(defect.changes, async (copy) => {
    const output = await runIn(copy, defect);
    const first = output.findIndex((line) => line.startsWith(`violated: ${defect.rule} (`));
    const others = output.filter((line) => line.startsWith('violated: '));
    const sum = output.filter((line) => line.includes(`${defect.rule}: `) || line.endsWith(' failed'));
    const shown = first < 0 ? sum : [output[first] ?? '', output[first + 1] ?? ''];
    return { isFound: first >= 0, lines: [...shown, ...others.filter((line) => line !== output[first])] };
  });
}

async function runIn(copy: string, { only }: Defect): Promise<string[]> {
  const args = only.flatMap((text) => ['--only', text]);
  const out = ['--out', path.join(copy, 'out')];
  const main = path.join(copy, 'test/chaos/main.ts');
  const child = spawn(process.execPath, [main, '--minutes', MINUTES, '--seed', '7', ...args, ...out], {
    cwd: copy,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  guard(child);
  let output = '';
  for await (const text of child.stdout) output += String(text);
  return output.split('\n');
}
