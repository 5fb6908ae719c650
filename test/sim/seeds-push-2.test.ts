import { PUSH } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(6, 30, PUSH);
