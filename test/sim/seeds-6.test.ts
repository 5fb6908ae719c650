import { testSeeds } from './seeds.ts';

testSeeds(165, 200);
