/**
 * Copies the layers that its other arguments name to the first one. The last layer removes `many`.
 */
import { copyLayers } from '../../../../lib/agent/containers/root/copied-root.ts';

const [root = '', ...layers] = process.argv.slice(2);
const removedIn = (at: number) => (at === layers.length - 1 ? ['many'] : []);
await copyLayers(
  root,
  layers.map((layer, at) => ({ root: layer, isForOverlay: false, removed: removedIn(at), opaque: [] })),
);
