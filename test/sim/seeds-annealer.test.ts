import { ANNEALER } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 2, ANNEALER);
