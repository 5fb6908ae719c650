/** The nouns of the bucket store, in the order in which they start: one line for each. */
export {};
