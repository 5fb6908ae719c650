import { testSeeds } from './seeds.ts';

testSeeds(4, 50);
