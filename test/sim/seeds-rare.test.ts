import { RARE } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 12, RARE);
