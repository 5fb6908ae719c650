/**
 * The tasks that this process claimed to post and whose ends are not recorded yet, and how much
 * room they take. Owned by `legacy-dispatch.ts`. Pure.
 */

import { type EndReport, sizeOf, withoutResult } from '../tasks/reports/report.ts';
import type { PostLimits } from '../tasks/store/task-limits.ts';
import type { ClaimedPostRow } from './post-store.ts';

/** A task that this process claimed. It is read first, and then posted. */
export interface HeldPost {
  claimed: ClaimedPostRow;
  /** The run that the row names. */
  run: string;
  giveUp: AbortController;
  end?: EndReport;
}

/** Limit for the ends not recorded yet; above it the results are dropped. */
const MAX_ENDS_SIZE = 64 * 1024 * 1024;

export class HeldPosts {
  readonly #limits: PostLimits;
  readonly #posts = new Map<string, HeldPost>();
  /** Bytes of their params. */
  #bytes = 0;
  #endsSize = 0;

  constructor(limits: PostLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#posts.size;
  }

  /** What may still be claimed. */
  get room(): PostLimits {
    const { posts, bytes } = this.#limits;
    return { posts: posts - this.#posts.size, bytes: bytes - this.#bytes };
  }

  all(): HeldPost[] {
    return [...this.#posts.values()];
  }

  /** False if it was deleted, or claimed again since. */
  has(post: HeldPost): boolean {
    return this.#posts.get(idOf(post)) === post;
  }

  add(claimed: ClaimedPostRow, run: string): HeldPost {
    const post: HeldPost = { claimed, run, giveUp: new AbortController() };
    this.#posts.set(claimed.id, post);
    this.#bytes += claimed.params_bytes;
    return post;
  }

  /** The end waits to be recorded, without its result if too much waits. */
  end(post: HeldPost, end: EndReport): void {
    const isTooMuch = this.#endsSize + sizeOf(end) > MAX_ENDS_SIZE;
    post.end = isTooMuch ? withoutResult(end, 'too much was waiting to be recorded') : end;
    this.#endsSize += sizeOf(post.end);
  }

  /** False if it is not held any more. */
  delete(post: HeldPost): boolean {
    if (!this.has(post)) return false;
    this.#posts.delete(idOf(post));
    this.#bytes -= post.claimed.params_bytes;
    if (post.end !== undefined) this.#endsSize -= sizeOf(post.end);
    return true;
  }
}

export const idOf = ({ claimed }: HeldPost): string => claimed.id;
