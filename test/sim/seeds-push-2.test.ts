import { PUSH } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(11, 30, PUSH);
