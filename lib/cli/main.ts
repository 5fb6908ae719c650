/** `cnapi`: the command line as a program. */
import { runCli } from './run.ts';
import { untilFlushed } from './terminal/output.ts';
import { ignoreAsCalled } from './terminal/signals.ts';

ignoreAsCalled(process.env);
const exitCode = await runCli(process.argv.slice(2), { env: process.env, streams: process });
// A pipe takes 64 KiB at once; without waiting, an exit would drop the rest.
await untilFlushed();
process.exit(exitCode);
