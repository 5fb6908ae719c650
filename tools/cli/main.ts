/** `npm run docs:cli`: regenerates docs/cli.md. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseOnly } from '../../lib/cli/invocation/command-runner.ts';
import { createProgram } from '../../lib/cli/program.ts';
import { reference } from './reference.ts';

const program = createProgram(parseOnly);
writeFileSync(path.resolve(import.meta.dirname, '../../docs/cli.md'), reference(program));
