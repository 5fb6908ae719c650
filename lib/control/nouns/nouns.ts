/**
 * The nouns of the bucket store, in the order in which they start: one line for each, so that a
 * noun is added by one line (docs/adding-a-noun.md).
 */
export type { OpenNoun } from '../documents/noun.ts';
