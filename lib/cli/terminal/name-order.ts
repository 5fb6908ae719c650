/** The order in which nodes, servers and other things with names are shown. Pure. */
const byText = new Intl.Collator('en', { numeric: true });

interface Named {
  name?: unknown;
  uuid?: unknown;
  server_uuid?: unknown;
}

/**
 * Sorts by name, with numbers in numeric order: node-2 before node-10. Equal names are sorted by
 * uuid.
 */
export const sortByName = <One extends Named>(all: readonly One[]): One[] =>
  all.toSorted((a, b) => byText.compare(nameOf(a), nameOf(b)) || byText.compare(idOf(a), idOf(b)));

const nameOf = ({ name }: Named): string => String(name ?? '');
const idOf = ({ server_uuid, uuid }: Named): string => String(server_uuid ?? uuid ?? '');
