import t from 'tap';
import { visible, visibleLines } from '../../../lib/cli/terminal/visible.ts';

t.test('text from elsewhere cannot send escapes to the terminal', (t) => {
  const hostile = 'a\x1b]0;title\x07b\x9b31m\u202ec\r\n\0';
  t.equal(visible(hostile), 'a\\x1b]0;title\\x07b\\x9b31m\\u202ec\\r\\n\\x00');
  t.equal(visibleLines('one\r\ntwo\tx\rthree\x1b[2J\n'), 'one\ntwo\tx\\rthree\\x1b[2J\n');
  t.equal(visible('grüße 日本'), 'grüße 日本');
  t.end();
});
