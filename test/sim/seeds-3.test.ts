import { testSeeds } from './seeds.ts';

testSeeds(69, 102);
