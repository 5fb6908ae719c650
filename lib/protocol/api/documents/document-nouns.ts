/**
 * The declarations of the nouns of the bucket store: one line for each, so that a noun is added by
 * one line (docs/adding-a-noun.md). `lib/control/documents/nouns.ts` lists what instances do with
 * them.
 */
export { deployments, roles } from './annealer.ts';
export type { DocumentNoun } from './document-noun.ts';
export { bindings, clients, groups, keys, organizations, users } from './organizations.ts';
export { bootPlatforms } from './platforms.ts';
export { serverGroups } from './server-groups.ts';
