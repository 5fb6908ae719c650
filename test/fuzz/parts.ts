/** All parts, in the order in which they are run. */
import { linkPart } from './link.ts';
import type { Part } from './part.ts';
import { restPart } from './rest.ts';

export const parts: readonly Part[] = [restPart, linkPart];
