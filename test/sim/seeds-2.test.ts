import { testSeeds } from './seeds.ts';

testSeeds(35, 68);
