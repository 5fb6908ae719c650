/** Puts the images of one agent together. */
import { join } from 'node:path';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { OpenedContainers } from '../containers/open-containers.ts';
import { recordFiles } from '../records/record-files.ts';
import type { StoredImage } from './image.ts';
import { type ImageOptions, Images } from './images.ts';

interface OpenImagesDeps
  extends ImageOptions,
    Pick<OpenedContainers, 'containers' | 'layers' | 'unpack' | 'unavailableReason'> {
  clock: Clock;
  log: Logger;
  /** Data directory of the agent. */
  data: string;
}

export async function openImages({ data, ...deps }: OpenImagesDeps): Promise<Images> {
  const directory = join(data, 'images');
  const records = recordFiles<StoredImage>(join(directory, 'records'), ({ uuid }) => uuid);
  const images = new Images({ ...deps, directory, records });
  await images.start();
  return images;
}
