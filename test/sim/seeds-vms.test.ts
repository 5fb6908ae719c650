import { VMS } from './plan.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 8, VMS);
