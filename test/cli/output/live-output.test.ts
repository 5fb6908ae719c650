/** What `cnapi exec` shows of output that did not come while the command ran. */
import t from 'tap';
import { LiveOutput } from '../../../lib/cli/output/live-output.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const piece = (offset: number, text: string) => ({ data: { stream: 'stdout', offset, text }, attempt: 1 });
const TASK = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
const HOLD_MS = 2000;

function shownOn({ isTTY, prefix }: { isTTY: boolean; prefix?: string }) {
  const clock = new ManualClock();
  let text = '';
  const add = (added: string | Uint8Array) => {
    text += added;
  };
  const remark = (added: string) => add(`[${added}]\n`);
  const live = new LiveOutput(
    { output: { raw: add, rawError: add, note: remark, complain: remark, isTerminalOf: () => isTTY }, clock },
    { raw: false, prefix, label: '' },
  );
  return { live, clock, text: () => text };
}

t.test('on a terminal, output that came with the result is shown at the end, and nothing is missing', async (t) => {
  const { live, clock, text } = shownOn({ isTTY: true });
  live.write(piece(0, '1\n2\n'));
  live.write(piece(6, '4\n'));
  await clock.advance(HOLD_MS);
  t.equal(text(), '1\n2\n[2 bytes of stdout are missing here]\n4\n', 'what follows is not held back for long');
  t.ok(live.isIncomplete);
  live.end({ stdout: '1\n2\n3\n4\n5\n' }, TASK);
  t.equal(
    text(),
    '1\n2\n[2 bytes of stdout are missing here]\n4\n5\n[2 bytes of stdout that were missing above:]\n3\n',
  );
  t.notOk(live.isIncomplete);
});

t.test('the missing part of a line begins and ends a line, with the prefix of its server', async (t) => {
  const { live, clock, text } = shownOn({ isTTY: true, prefix: 'web-1 | ' });
  live.write(piece(0, 'a'));
  live.write(piece(2, 'c'));
  await clock.advance(HOLD_MS);
  live.end({ stdout: 'abc' }, TASK);
  t.match(text(), /^web-1 \| a\n\[1 bytes .*\]\nweb-1 \| c\n\[1 bytes .*\]\nweb-1 \| b\n$/);
});

t.test('what the result does not have stays missing', async (t) => {
  for (const result of [undefined, {}, { stdout: '1\n\n[… 4 bytes cut …]\n4\n' }]) {
    const { live, clock } = shownOn({ isTTY: true });
    live.write(piece(0, '1\n'));
    live.write(piece(6, '4\n'));
    await clock.advance(HOLD_MS);
    live.end(result, TASK);
    t.ok(live.isIncomplete);
  }
});

t.test('a pipe gets nothing out of order: it names the task that has what is missing', async (t) => {
  const { live, text } = shownOn({ isTTY: false });
  const isMore = 'x'.repeat(600_000);
  live.write(piece(2, isMore));
  live.write(piece(2 + isMore.length, isMore));
  live.end({ stdout: `1\n${'x'.repeat(1000)}\n[… 1199000 bytes cut …]\n` }, TASK);
  t.match(text(), new RegExp(`\\[cnapi task ${TASK} shows 2 bytes that are missing\\]\n$`));
  t.ok(live.isIncomplete);
});
