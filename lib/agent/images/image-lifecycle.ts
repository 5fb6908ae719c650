/**
 * The states of one image on a server, as a pure function. `images.ts` drives it: the record of the
 * new state is on disk before the step is carried out.
 *
 *     absent ──load──▶ fetching ──fetched──▶ unpacking ──unpacked──▶ ready ──remove──▶ removing ──▶ absent
 *        ▲                 │ failed               │ failed                                  ▲
 *        └──removed────────┴──────▶ failed ◀──────┘ ───────────────remove───────────────────┘
 *                                    └──load──▶ fetching
 */

export type ImageState =
  | { name: 'fetching' }
  | { name: 'unpacking' }
  | { name: 'ready' }
  /** Nothing of it can be used; a download may continue. */
  | { name: 'failed'; code: string; reason: string }
  | { name: 'removing' };

export type ImageEvent =
  | { name: 'load' }
  | { name: 'fetched' }
  | { name: 'unpacked' }
  | { name: 'failed'; code: string; reason: string }
  | { name: 'remove' }
  | { name: 'removed' }
  /** A new agent has read the record: nobody works on the image. */
  | { name: 'restarted' };

type ImageStep =
  /** Undefined: there is no such image afterwards. */
  | { state: ImageState | undefined; work: 'fetch' | 'unpack' | 'remove' | 'none' }
  /** Nothing changes. `ready`: it is there already. `busy`: somebody works on it. `absent`: there is none. */
  | { refused: 'ready' | 'busy' | 'absent' };

const RESTARTED = {
  name: 'failed',
  code: 'ImageSourceFailed',
  reason: 'the agent ended while it was loaded; load it again, and the download continues',
} as const satisfies ImageState;

/** @throws Error for an event that cannot come in this state */
export function nextImageStep(state: ImageState | undefined, event: ImageEvent): ImageStep {
  switch (event.name) {
    case 'load':
      if (state === undefined || state.name === 'failed') return { state: { name: 'fetching' }, work: 'fetch' };
      return { refused: state.name === 'ready' ? 'ready' : 'busy' };
    case 'fetched':
      if (state?.name === 'fetching') return { state: { name: 'unpacking' }, work: 'unpack' };
      break;
    case 'unpacked':
      if (state?.name === 'unpacking') return { state: { name: 'ready' }, work: 'none' };
      break;
    case 'failed':
      if (state?.name === 'fetching' || state?.name === 'unpacking')
        return { state: { name: 'failed', code: event.code, reason: event.reason }, work: 'none' };
      break;
    case 'remove':
      if (state === undefined) return { refused: 'absent' };
      if (state.name === 'ready' || state.name === 'failed') return { state: { name: 'removing' }, work: 'remove' };
      return { refused: 'busy' };
    case 'removed':
      if (state?.name === 'removing') return { state: undefined, work: 'none' };
      break;
    case 'restarted':
      if (state?.name === 'removing') return { state, work: 'remove' };
      if (state?.name === 'ready' || state?.name === 'failed') return { state, work: 'none' };
      if (state !== undefined) return { state: RESTARTED, work: 'none' };
      break;
    default:
      return event satisfies never;
  }
  throw new Error(`An image that is ${state?.name ?? 'absent'} cannot be ${event.name}`);
}
