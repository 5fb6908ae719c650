/** `npm run docs`: regenerates the pages of docs/ that follow from declarations. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { pages } from './pages.ts';

for (const { file, text } of pages()) writeFileSync(path.resolve(import.meta.dirname, '../../docs', file), text);
