import { testSeeds } from './seeds.ts';

testSeeds(169, 200);
