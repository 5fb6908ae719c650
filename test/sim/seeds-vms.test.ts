import { VMS } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(1, 4, VMS);
