import t from 'tap';
import { suggestion } from '../../lib/platform/suggestion.ts';

t.test('the known name with the longest same beginning or end is suggested', (t) => {
  const known = ['alias', 'max_physical_memory', 'max_lwps', 'quota'];
  for (const [name, expected] of [
    ['max_physical_memry', '; did you mean max_physical_memory?'],
    ['memory', '; did you mean max_physical_memory?'],
    ['max_lwp', '; did you mean max_lwps?'],
    ['al', ''],
    ['nosuch', ''],
  ] as const)
    t.equal(suggestion(name, known), expected, name);
  t.equal(suggestion('anything', []), '');
  t.end();
});
