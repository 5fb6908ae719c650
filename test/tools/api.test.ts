import { readFileSync } from 'node:fs';
import t from 'tap';
import { allContracts } from '../../lib/control/nouns/all-contracts.ts';
import { reference } from '../../tools/api/reference.ts';

t.test('docs/rest-api.md describes each route as its contract does (npm run docs:api)', (t) => {
  const page = readFileSync(new URL('../../docs/rest-api.md', import.meta.url), 'utf8');
  t.equal(page, reference(allContracts));
  t.end();
});
