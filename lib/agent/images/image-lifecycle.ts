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
  | { type: 'load' }
  | { type: 'fetched' }
  | { type: 'unpacked' }
  | { type: 'failed'; code: string; reason: string }
  | { type: 'remove' }
  | { type: 'removed' }
  /** A new agent has read the record: nobody works on the image. */
  | { type: 'recovered' };

export interface ImageEffect {
  do: 'fetch' | 'unpack' | 'remove';
}

type ImageStep =
  /** `state` is undefined when there is no such image afterwards. */
  | { state: ImageState | undefined; effects: readonly ImageEffect[] }
  /** `ready`: it is there already. `busy`: somebody works on it. `absent`: there is none. */
  | { refusal: 'ready' | 'busy' | 'absent' };

/** The image received an event that its state cannot have. */
export class ImageTransitionError extends Error {
  constructor(state: ImageState | undefined, event: ImageEvent) {
    super(`An image that is ${state?.name ?? 'absent'} cannot have the event ${event.type}`);
    this.name = 'ImageTransitionError';
  }
}

const CUT_OFF = {
  name: 'failed',
  code: 'ImageSourceFailed',
  reason: 'the agent ended while it was loaded; load it again, and the download continues',
} as const satisfies ImageState;

/** `state` is undefined while there is no such image. Does not modify it. */
export function stepImage(state: ImageState | undefined, event: ImageEvent): ImageStep {
  switch (event.type) {
    case 'load':
      if (state === undefined || state.name === 'failed') return to({ name: 'fetching' }, 'fetch');
      return { refusal: state.name === 'ready' ? 'ready' : 'busy' };
    case 'fetched':
      return state?.name === 'fetching' ? to({ name: 'unpacking' }, 'unpack') : illegal(state, event);
    case 'unpacked':
      return state?.name === 'unpacking' ? to({ name: 'ready' }) : illegal(state, event);
    case 'failed':
      if (state?.name !== 'fetching' && state?.name !== 'unpacking') return illegal(state, event);
      return to({ name: 'failed', code: event.code, reason: event.reason });
    case 'remove':
      if (state === undefined) return { refusal: 'absent' };
      if (state.name !== 'ready' && state.name !== 'failed') return { refusal: 'busy' };
      return to({ name: 'removing' }, 'remove');
    case 'removed':
      return state?.name === 'removing' ? to(undefined) : illegal(state, event);
    case 'recovered':
      if (state === undefined) return illegal(state, event);
      if (state.name === 'removing') return to(state, 'remove');
      return to(state.name === 'ready' || state.name === 'failed' ? state : CUT_OFF);
    default:
      return event satisfies never;
  }
}

function to(state: ImageState | undefined, ...effects: ImageEffect['do'][]): ImageStep {
  return { state, effects: effects.map((effect) => ({ do: effect })) };
}

function illegal(state: ImageState | undefined, event: ImageEvent): never {
  throw new ImageTransitionError(state, event);
}
