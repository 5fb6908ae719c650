/**
 * The images of this server by uuid: their records on disk and their states. image-lifecycle.ts says
 * which state follows. A record that cannot be read is left as it is, and so is its image: nobody
 * knows what it needs. Used by images.ts.
 */
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import type { RecordFiles } from '../records/record-files.ts';
import { spaceErrorOf } from './archive-file.ts';
import type { StoredImage } from './image.ts';
import { ImageBusyError, ImageNotFoundError } from './image-errors.ts';
import { type ImageEvent, type ImageState, nextImageStep } from './image-lifecycle.ts';

export interface ImageTableDeps {
  log: Logger;
  records: RecordFiles<StoredImage>;
}

export type NewImage = Omit<StoredImage, 'state'>;

const UNREADABLE =
  'has a record on the server that cannot be read, so it is left as it is; repair the record or remove it, and restart the agent';

export class ImageTable {
  readonly #deps: ImageTableDeps;
  readonly #images = new Map<string, StoredImage>();
  /** Images whose records cannot be read. */
  readonly #damaged = new Set<string>();
  /** Whoever reads a record to write it changed. */
  readonly #turn = new Semaphore(1);

  constructor(deps: ImageTableDeps) {
    this.#deps = deps;
  }

  async load(): Promise<void> {
    const { records: found, damaged } = await this.#deps.records.load();
    for (const { id, reason } of damaged) {
      this.#deps.log.error({ image: id, reason }, 'images: a record cannot be read; its image is left as it is');
      this.#damaged.add(id);
    }
    for (const image of found) this.#images.set(image.uuid, image);
  }

  get size(): number {
    return this.#images.size + this.#damaged.size;
  }

  /** Then nobody knows which layers images need. */
  get hasDamaged(): boolean {
    return this.#damaged.size > 0;
  }

  list(): StoredImage[] {
    return [...this.#images.values()];
  }

  /** @throws ImageBusyError if its record cannot be read */
  find(uuid: string): StoredImage | undefined {
    if (this.#damaged.has(uuid)) throw new ImageBusyError(uuid, UNREADABLE);
    return this.#images.get(uuid);
  }

  /** @throws ImageNotFoundError, ImageBusyError */
  read(uuid: string): StoredImage {
    const image = this.find(uuid);
    if (image === undefined) throw new ImageNotFoundError(uuid);
    return image;
  }

  /** Runs `work`, which reads records and writes them changed, while nobody else does. */
  withTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#turn.run(work);
  }

  /** @throws ImageBusyError if the image cannot have the event in its state */
  async apply(uuid: string, event: ImageEvent): Promise<{ work: string }> {
    return this.withTurn(async () => {
      const image = this.read(uuid);
      const step = nextImageStep(image.state, event);
      if ('refused' in step) throw new ImageBusyError(uuid);
      if (step.state !== image.state) await this.move(image, event, step.state);
      return step;
    });
  }

  /**
   * Stores and logs a change of the state; undefined: the image is gone. On a full disk an image becomes
   * `failed` or `removing` unrecorded, so that it can be deleted. The next agent repeats the first, and
   * it finds the image as it was, or not at all, instead of the second.
   */
  async move(image: StoredImage | NewImage, event: ImageEvent, to: ImageState | undefined): Promise<void> {
    const { uuid } = image;
    const from = this.#images.get(uuid)?.state;
    if (to !== undefined) await this.#saveState({ ...image, state: to });
    else {
      await this.#deps.records.remove(uuid);
      this.#images.delete(uuid);
    }
    const reason = 'reason' in event ? { reason: event.reason } : {};
    const states = { from: from?.name ?? 'absent', to: to?.name ?? 'absent' };
    this.#deps.log.info({ image: uuid, ...states, event: event.name, ...reason }, 'images: the state changed');
  }

  /** @throws NoImageSpaceError if the disk is full */
  async save(image: StoredImage): Promise<void> {
    await this.#deps.records.write(image).catch((error: unknown) => {
      throw spaceErrorOf(error) ?? error;
    });
    this.#images.set(image.uuid, image);
  }

  async #saveState(image: StoredImage): Promise<void> {
    const { uuid, state } = image;
    try {
      await this.save(image);
    } catch (err) {
      if (state.name !== 'failed' && state.name !== 'removing') throw err;
      this.#deps.log.error({ err, image: uuid }, 'images: a state cannot be recorded');
      this.#images.set(uuid, image);
    }
  }
}
