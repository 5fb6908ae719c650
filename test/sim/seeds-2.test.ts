import { testSeeds } from './seeds.ts';

testSeeds(7, 50);
