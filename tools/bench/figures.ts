/** All figures, in the order of the table. */
import type { Figure } from './figure.ts';

export const figures: readonly Figure[] = [];
