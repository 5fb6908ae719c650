import { testSeeds } from './seeds.ts';

testSeeds(127, 164);
