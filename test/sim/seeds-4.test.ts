import { testSeeds } from './seeds.ts';

testSeeds(103, 136);
