/**
 * The declarations of the nouns of the bucket store: one line for each, so that a noun is added by
 * one line (docs/adding-a-noun.md). They are pure, and the command line reads them, too. So they are
 * a list apart from `nouns.ts`, which loads the code of an instance.
 */
export type { DocumentNoun } from '../../protocol/api/documents.ts';
export { bindings, clients, groups, keys, organizations, users } from '../../protocol/api/organizations.ts';
export { serverGroups } from './server-groups/contract.ts';
