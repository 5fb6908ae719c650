import { testSeeds } from './seeds.ts';

testSeeds(89, 126);
