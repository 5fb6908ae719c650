import { testSeeds } from './seeds.ts';

testSeeds(3, 50);
