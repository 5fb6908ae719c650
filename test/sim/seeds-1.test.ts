import { testSeeds } from './seeds.ts';

await testSeeds(1, 100);
