/** What both programs of agents do at their start and end. */
import { messageOf } from '../platform/errors.ts';
import { AgentUsageError } from './usage-error.ts';

/** Exit codes: 1 error, 2 usage. */
export function runProgram(name: string, main: () => Promise<void>): void {
  main().catch((error: unknown) => {
    const isUsage = error instanceof AgentUsageError;
    process.stderr.write(`${name}: ${isUsage ? messageOf(error) : ((error as Error).stack ?? messageOf(error))}\n`);
    if (isUsage) process.stderr.write('Try --help.\n');
    process.exit(isUsage ? 2 : 1);
  });
}

/** Resolves at the first SIGTERM or SIGINT; later ones change nothing. */
export function waitForSignal(): Promise<void> {
  return new Promise((done) => {
    process.on('SIGTERM', () => done());
    process.on('SIGINT', () => done());
  });
}
