/**
 * A root file system as an overlay: layers that nobody writes to, and an upper directory with the
 * changes of one container. Beside its mount point it has
 *
 *     upper/, work/    of overlay
 *     layers/N         a link to each layer, the topmost is 0
 *
 * The layers are mounted by these short relative names. The options of a mount have room in one
 * page (4,096 bytes), and a name may have a colon or a comma, which separate them.
 */
import { chmod, chown, mkdir, rm, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../platform/errors.ts';
import { markForOverlay } from '../layers/whiteouts.ts';
import { mountPointsAt, unmountAll } from './mounts.ts';
import { runOrThrow } from './program.ts';
import { removeTree } from './remove-tree.ts';

export interface OverlayPaths {
  /** The mount point. */
  root: string;
  upper: string;
  work: string;
  layers: string;
}

/** The kernel takes no more (OVL_MAX_STACK); their names below have 1,890 bytes then. */
export const MAX_OVERLAY_LAYERS = 500;

export const overlayPaths = (directory: string): OverlayPaths => ({
  root: join(directory, 'root'),
  upper: join(directory, 'upper'),
  work: join(directory, 'work'),
  layers: join(directory, 'layers'),
});

/**
 * Mounts it unless it is mounted; what the container has changed before is there again.
 * @param layers roots of layers, the lowest first
 * @throws ContainerError, or an error of the file system
 */
export async function mountOverlay(paths: OverlayPaths, layers: readonly string[]): Promise<void> {
  await makeUpper(paths.upper, layers.at(-1) ?? '/');
  await mkdir(paths.work, { recursive: true, mode: 0o700 });
  await mkdir(paths.root, { recursive: true, mode: 0o755 });
  if ((await mountPointsAt(paths.root)).includes(paths.root)) return;
  await rm(paths.layers, { recursive: true, force: true });
  await mkdir(paths.layers, { mode: 0o700 });
  const topFirst = layers.toReversed();
  await Promise.all(topFirst.map((layer, index) => symlink(layer, join(paths.layers, String(index)))));
  const lower = topFirst.map((_, index) => index).join(':');
  const options = `nosuid,nodev,lowerdir=${lower},upperdir=../upper,workdir=../work`;
  await runOrThrow('mount', ['-t', 'overlay', '-o', options, 'overlay', paths.root], { directory: paths.layers });
}

/** Tries it in a directory, which is removed. @returns why overlay cannot be used here, if so */
export async function overlayRefusal(directory: string): Promise<string | undefined> {
  const paths = overlayPaths(directory);
  try {
    await removeTree(directory);
    const [low, high] = [join(directory, 'low'), join(directory, 'high')];
    await mkdir(join(low, 'hidden'), { recursive: true });
    await mkdir(high);
    await markForOverlay(high, { removed: ['hidden'], opaque: [] });
    await mountOverlay(paths, [low, high]);
    const isHidden = await stat(join(paths.root, 'hidden')).then(
      () => false,
      () => true,
    );
    return isHidden ? undefined : 'overlay does not hide what a layer removes';
  } catch (error) {
    return messageOf(error);
  } finally {
    await unmountAll(paths.root);
    await removeTree(directory);
  }
}

/** The root of an overlay has the owner and the mode of its upper directory. */
async function makeUpper(upper: string, topmost: string): Promise<void> {
  const { uid, gid, mode } = await stat(topmost);
  try {
    await mkdir(upper, 0o700);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return;
    throw error;
  }
  await chown(upper, uid, gid);
  await chmod(upper, mode & 0o7777);
}
