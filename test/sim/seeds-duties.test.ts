import { DUTIES } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 15, DUTIES);
