import { PUSH } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(6, 30, PUSH);
