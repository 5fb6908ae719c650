/**
 * One follower of the feed of a push job, from any number on. Called by job-followers.ts.
 *
 *     read a page ──▶ send it ──▶ more? ──▶ read a page
 *                                   └─ no ─▶ wait until there is more; the job's end ends the feed
 */
import type { Watch } from '../../../platform/waits/watches.ts';
import type { FeedEvent } from './feed-store.ts';
import type { PushJobPosition } from './follow-store.ts';
import type { SharedRead } from './shared-read.ts';

interface FeedFollowerDeps {
  watch: Watch<PushJobPosition>;
  pages: SharedRead<{ jobId: string; after: number }, FeedEvent[]>;
}

export async function* followFeed(
  { watch, pages }: FeedFollowerDeps,
  { jobId, after, ending }: { jobId: string; after: number; ending: AbortSignal },
): AsyncGenerator<FeedEvent, void, undefined> {
  try {
    for (let at = after; ; ) {
      const hasMore = (position: PushJobPosition | undefined) =>
        position === undefined || position.lastEvent > at || position.state === 'ended';
      const seen = await watch.until(hasMore, { endSignal: ending });
      if (ending.aborted) return;
      const position = seen?.position;
      if (position === undefined || position.lastEvent <= at) return;
      const page = await pages.ask({ jobId, after: at });
      // The job was deleted meanwhile.
      if (page.length === 0) return;
      for (const event of page) {
        if (ending.aborted) return;
        yield event;
        at = event.number;
      }
    }
  } finally {
    watch.close();
  }
}
