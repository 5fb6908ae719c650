import { testSeeds } from './seeds.ts';

testSeeds(137, 168);
