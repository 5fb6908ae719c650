import { VMS } from './seed-kinds.ts';
import { testSeeds } from './seeds.ts';

testSeeds(5, 8, VMS);
