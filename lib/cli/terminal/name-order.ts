/** The order in which nodes and servers are shown. Pure. */
const byText = new Intl.Collator('en', { numeric: true });

/** By name, as people count: node-2 before node-10. */
export const inOrderOfName = <Node extends { name?: string; server_uuid: string }>(nodes: readonly Node[]): Node[] =>
  nodes.toSorted((a, b) => byText.compare(a.name ?? '', b.name ?? '') || byText.compare(a.server_uuid, b.server_uuid));
