/** `cnapi`: the command line as a program. */
import { runCli } from './run.ts';
import { flushOutput } from './terminal/output.ts';
import { restoreIgnoredSignals } from './terminal/signals.ts';

restoreIgnoredSignals(process.env);
const exitCode = await runCli(process.argv.slice(2), { env: process.env, streams: process });
// A pipe takes 64 KiB at once; without waiting, an exit would drop the rest.
await flushOutput();
process.exit(exitCode);
