import { WORKFLOWS } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(5, 6, WORKFLOWS);
