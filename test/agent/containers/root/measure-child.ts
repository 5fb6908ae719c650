/** Measures the tree that its argument names. */
import { measureTree } from '../../../../lib/agent/containers/root/measure-tree.ts';

console.log(await measureTree(process.argv[2] as string, 500_000));
