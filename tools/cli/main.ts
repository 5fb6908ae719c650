/** `npm run docs:cli`: regenerates docs/cli.md. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Runner } from '../../lib/cli/invocation/runner.ts';
import { createProgram } from '../../lib/cli/program.ts';
import { reference } from './reference.ts';

const program = createProgram(new Runner());
writeFileSync(path.resolve(import.meta.dirname, '../../docs/cli.md'), reference(program));
