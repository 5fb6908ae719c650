import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { allContracts } from '../../lib/protocol/api/all-contracts.ts';

const ROUTES_OF_TRITON = 79;
const page = readFileSync(path.resolve(import.meta.dirname, '../../docs/triton-routes.md'), 'utf8');
const rows = [...page.matchAll(/^\| `([A-Z]+ \S+)` \| (\S+) \| (.*)\|$/gm)].map(
  ([, route = '', how = '', note = '']) => ({
    route,
    how,
    note: note.trim(),
  }),
);
/** Routes that Triton's clients call. */
const built = allContracts
  .filter(({ origin }) => origin === 'reference')
  .map(({ method, path: at }) => `${method} ${at}`);
const routesOf = (...kinds: string[]) => rows.filter(({ how }) => kinds.includes(how)).map(({ route }) => route);

t.test('the page has each route of Triton once, with one of four words', async (t) => {
  t.equal(new Set(rows.map(({ route }) => route)).size, ROUTES_OF_TRITON);
  t.equal(rows.length, ROUTES_OF_TRITON);
  t.same(
    rows.map(({ how }) => how).filter((how) => !['same', 'better', 'refused', 'missing'].includes(how)),
    [],
  );
});

t.test('a route is missing in the page exactly if the instances do not have it', async (t) => {
  t.same(routesOf('same', 'better', 'refused').toSorted(), built.toSorted());
});

t.test('what is better or refused says how or why', async (t) => {
  t.same(
    rows.filter(({ how, note }) => ['better', 'refused'].includes(how) && note === '').map(({ route }) => route),
    [],
  );
});
