import { PUSH } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 5, PUSH);
