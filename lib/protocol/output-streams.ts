/** The streams that a command writes to, as frames, events and results name them. */
export const OUTPUT_STREAMS = ['stdout', 'stderr'] as const;

export type OutputChannel = (typeof OUTPUT_STREAMS)[number];
