/** Signals that ask to end, as they come; while somebody listens the process does not end of them by itself. */
export const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type EndingSignal = (typeof ENDING)[number];

export const exitCodeOfSignal = (signal: EndingSignal): number => 128 + { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 }[signal];

/** Calls `listener` with each, and how many came before; gives the way to stop that. */
export function onEndingSignal(listener: (signal: EndingSignal, before: number) => void): () => void {
  let before = 0;
  const each = ENDING.map((signal) => {
    const heard = () => listener(signal, before++);
    process.on(signal, heard);
    return () => process.off(signal, heard);
  });
  return () => each.forEach((stop) => void stop());
}
