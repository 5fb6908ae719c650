/**
 * The nouns of the bucket store: one line for each, so that a noun is added by one line
 * (docs/adding-a-noun.md). They start in the alphabetical order of their names.
 */
export type { DocumentSubsystem } from './document-subsystem.ts';
export { platformsSubsystem } from './platforms/platforms.ts';
export { serverGroupsSubsystem } from './server-groups/server-groups.ts';
