import { RARE } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 12, RARE);
