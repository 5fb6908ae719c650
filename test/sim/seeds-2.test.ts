import { testSeeds } from './seeds.ts';

testSeeds(13, 50);
