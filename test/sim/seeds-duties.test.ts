import { DUTIES } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 15, DUTIES);
