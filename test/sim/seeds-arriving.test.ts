import { ARRIVING } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 7, ARRIVING);
