/** `npm run docs:config`: regenerates docs/configuration.md. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { configurationPage } from './reference.ts';

writeFileSync(path.resolve(import.meta.dirname, '../../docs/configuration.md'), configurationPage());
