/**
 * The images of this server by uuid, with their states. image-lifecycle.ts says which state
 * follows. Used by images.ts.
 */
import type { Logger } from '../../platform/log.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { RecordTable } from '../records/record-table.ts';
import { toSpaceError } from './archive-file.ts';
import type { StoredImage } from './image.ts';
import { ImageBusyError, ImageNotFoundError } from './image-errors.ts';
import { type ImageEffect, type ImageEvent, type ImageState, stepImage } from './image-lifecycle.ts';

export interface ImageTableDeps {
  log: Logger;
  records: RecordFiles<StoredImage>;
}

type Changed = Partial<Omit<StoredImage, 'uuid' | 'state'>>;

export class ImageTable {
  readonly #log: Logger;
  readonly records: RecordTable<StoredImage>;

  constructor({ log, records: files }: ImageTableDeps) {
    this.#log = log;
    this.records = new RecordTable({
      log,
      noun: 'image',
      files,
      idOf: ({ uuid }) => uuid,
      errors: {
        notFound: (uuid) => new ImageNotFoundError(uuid),
        unreadable: (uuid, reason) =>
          new ImageBusyError(
            uuid,
            `Image ${uuid} is left as it is: its record cannot be read (${reason}); repair the record and restart the agent`,
          ),
        unrecorded: (_, cause) => toSpaceError(cause) ?? cause,
      },
    });
  }

  /**
   * An image that is not there, or whose last load failed, is loaded. @throws ImageBusyError,
   * NoImageSpaceError
   */
  async load(image: Omit<StoredImage, 'state'>): Promise<void> {
    const { uuid } = image;
    const event = { type: 'load' } as const;
    const known = this.records.find(uuid);
    const step = stepImage(known?.record.state, event);
    if ('refusal' in step || step.state === undefined) throw new ImageBusyError(uuid);
    const fresh = { ...image, state: step.state };
    const from = known?.record.state;
    if (known === undefined) await this.records.create(fresh, async () => undefined);
    else await this.records.withLock(known, () => this.records.save(known, fresh));
    this.#logChange(uuid, event, { from, to: step.state });
  }

  /**
   * Replaces the properties that `change` returns, if any. @throws ImageNotFoundError,
   * NoImageSpaceError
   */
  async update(uuid: string, change: (image: StoredImage) => Changed | undefined): Promise<void> {
    const entry = this.records.get(uuid);
    await this.records.withLock(entry, async () => {
      const changed = change(entry.record);
      if (changed !== undefined) await this.records.save(entry, { ...entry.record, ...changed });
    });
  }

  /**
   * On a full disk an image becomes `failed` or `removing` unrecorded, so that it can be deleted.
   * The next agent repeats the first, and it finds the image as it was, or not at all, instead of
   * the second.
   * @param check throws if the image must not have the event now
   * @throws ImageBusyError if the image cannot have the event in its state
   */
  async apply(uuid: string, event: ImageEvent, check?: (image: StoredImage) => void): Promise<readonly ImageEffect[]> {
    const entry = this.records.get(uuid);
    return this.records.withLock(entry, async () => {
      check?.(entry.record);
      const { state } = entry.record;
      const step = stepImage(state, event);
      if ('refusal' in step) throw new ImageBusyError(uuid);
      const { state: to, effects } = step;
      if (to === state) return effects;
      if (to === undefined) await this.records.remove(entry);
      else {
        const isOptional = to.name === 'failed' || to.name === 'removing';
        await this.records.save(entry, { ...entry.record, state: to }, { isOptional });
      }
      this.#logChange(uuid, event, { from: state, to });
      return effects;
    });
  }

  #logChange(
    uuid: string,
    event: ImageEvent,
    { from, to }: { from: ImageState | undefined; to: ImageState | undefined },
  ): void {
    const reason = 'reason' in event ? { reason: event.reason } : {};
    const fields = { image: uuid, event: event.type, ...reason };
    this.#log.info(fields, `image: ${from?.name ?? 'absent'} -> ${to?.name ?? 'absent'}`);
  }
}
