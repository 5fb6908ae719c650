/** `cnapi`: the command line as a program. */
import { runCli } from './run.ts';
import { restoreIgnoredSignals } from './terminal/signals.ts';

restoreIgnoredSignals(process.env);
const exitCode = await runCli(process.argv.slice(2), { env: process.env, streams: process });
process.exit(exitCode);
