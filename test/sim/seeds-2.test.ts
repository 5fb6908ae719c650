import { testSeeds } from './seeds.ts';

await testSeeds(101, 200);
