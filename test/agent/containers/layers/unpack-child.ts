/** Unpacks the archive of its standard input into the directory that its argument names. */
import { dirname, join } from 'node:path';
import { LayeredRootFileSystems } from '../../../../lib/agent/containers/root/layered-root-file-systems.ts';

const directory = process.argv[2] as string;
const ids = { first: 200_000, count: 65_536 };
const roots = await LayeredRootFileSystems.open({ directory: join(dirname(directory), '../child'), ids });
await roots.unpack(process.stdin, directory, { limits: { maxBytes: 1e9, maxEntries: 1e4, maxNameBytes: 1e6 } });
