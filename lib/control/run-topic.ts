/**
 * The topic of messages to one run of an instance: `{kind, …ids}`. Each noun that sends any
 * declares its kinds and ignores all others.
 */
export const runTopic = (run: string): string => `run:${run}`;
