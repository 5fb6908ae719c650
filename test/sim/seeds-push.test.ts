import { PUSH } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 5, PUSH);
