/** What `cnapi exec` reports after it was left, or when nobody reads its output any more. */
import t from 'tap';
import type { Context } from '../../../lib/cli/invocation/context.ts';
import type { CommandOutcome } from '../../../lib/cli/output/outcome.ts';
import { createListener, summarize } from '../../../lib/cli/output/reports.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const SERVER = { uuid: '00000000-0000-4000-8000-000000000001', hostname: 'web-1' };
const FAILED: CommandOutcome = { kind: 'failed', id: 'a', reason: 'cancelled' };
const HOLD_MS = 2000;

const piece = (offset: number, text: string) => ({ data: { stream: 'stdout', offset, text }, attempt: 1 });

function listening() {
  const clock = new ManualClock();
  const said: string[] = [];
  const say = (text: string) => void said.push(text);
  const streams = { raw: say, rawError: say, note: say, complain: say, isTerminalOf: () => false };
  const output = { ...streams, line: say, json: false, ready: async () => undefined };
  const context = { clock, output } as unknown as Context;
  return { listener: createListener(context, [SERVER], {}), clock, said };
}

t.test('when nobody reads the output, late output and its gaps are not reported', async (t) => {
  const { listener, clock, said } = listening();
  await listener.onOutput(SERVER, piece(0, 'a\n'));
  await listener.onOutput(SERVER, piece(9, 'held back\n'));
  listener.onUnread();
  await listener.onOutput(SERVER, piece(30, 'late\n'));
  await clock.advance(HOLD_MS);
  listener.onBroken(SERVER, 'connection lost');
  listener.onEnd(SERVER, FAILED);
  t.same(said, ['a\n']);
});

t.test('who leaves sees the output that was held back, and nothing after it', async (t) => {
  const { listener, clock, said } = listening();
  await listener.onOutput(SERVER, piece(0, 'a\n'));
  await listener.onOutput(SERVER, piece(9, 'held back\n'));
  listener.onLeave();
  await listener.onOutput(SERVER, piece(30, 'late\n'));
  await clock.advance(HOLD_MS);
  listener.onEnd(SERVER, FAILED);
  t.same(said, ['a\n', 'web-1: 7 bytes of stdout are missing here', 'held back\n']);
});

t.test('the summary counts cancelled commands apart from failed ones', async (t) => {
  const said: string[] = [];
  const context = { output: { note: (text: string) => said.push(text) } } as unknown as Context;
  const cancelled: CommandOutcome = { kind: 'failed', id: 'b', reason: 'it was cancelled', cancelled: true };
  const notStarted: CommandOutcome = {
    kind: 'failed',
    id: undefined,
    reason: 'cancelled before it was started',
    notStarted: true,
  };
  const endings: CommandOutcome[] = [FAILED, cancelled, cancelled, notStarted];
  summarize(context, [SERVER, SERVER, SERVER, SERVER], endings);
  t.same(said, ['4 servers: 1 failed, 2 cancelled, 1 not started']);
});
