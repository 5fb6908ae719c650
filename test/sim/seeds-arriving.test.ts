import { ARRIVING } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 7, ARRIVING);
