import t from 'tap';
import { escapeControls, escapeControlsInLines } from '../../../lib/cli/terminal/escape-controls.ts';

t.test('text from elsewhere cannot send escapes to the terminal', (t) => {
  const hostile = 'a\x1b]0;title\x07b\x9b31m\u202ec\r\n\0';
  t.equal(escapeControls(hostile), 'a\\x1b]0;title\\x07b\\x9b31m\\u202ec\\r\\n\\x00');
  t.equal(escapeControlsInLines('one\r\ntwo\tx\rthree\x1b[2J\n'), 'one\ntwo\tx\\rthree\\x1b[2J\n');
  t.equal(escapeControls('grüße 日本'), 'grüße 日本');
  t.end();
});
