/** `npm run docs:api`: regenerates docs/rest-api.md. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { allContracts } from '../../lib/control/nouns/all-contracts.ts';
import { reference } from './reference.ts';

writeFileSync(path.resolve(import.meta.dirname, '../../docs/rest-api.md'), reference(allContracts));
