import t from 'tap';
import {
  type ImageEvent,
  type ImageState,
  ImageTransitionError,
  stepImage,
} from '../../../lib/agent/images/image-lifecycle.ts';

const STATES: Readonly<Record<string, ImageState | undefined>> = {
  absent: undefined,
  fetching: { name: 'fetching' },
  unpacking: { name: 'unpacking' },
  ready: { name: 'ready' },
  failed: { name: 'failed', code: 'ImageSourceFailed', reason: 'cut' },
  removing: { name: 'removing' },
};

const EVENTS: Readonly<Record<ImageEvent['type'], ImageEvent>> = {
  load: { type: 'load' },
  fetched: { type: 'fetched' },
  unpacked: { type: 'unpacked' },
  failed: { type: 'failed', code: 'InvalidImage', reason: 'it is cut off' },
  remove: { type: 'remove' },
  removed: { type: 'removed' },
  recovered: { type: 'recovered' },
};

/** The state afterwards and the effects; `refusal` and why; or `never`. */
const TABLE: Readonly<Record<string, Readonly<Record<ImageEvent['type'], string>>>> = {
  absent: {
    load: 'fetching, fetch',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'refusal: absent',
    removed: 'never',
    recovered: 'never',
  },
  fetching: {
    load: 'refusal: busy',
    fetched: 'unpacking, unpack',
    unpacked: 'never',
    failed: 'failed',
    remove: 'refusal: busy',
    removed: 'never',
    recovered: 'failed',
  },
  unpacking: {
    load: 'refusal: busy',
    fetched: 'never',
    unpacked: 'ready',
    failed: 'failed',
    remove: 'refusal: busy',
    removed: 'never',
    recovered: 'failed',
  },
  ready: {
    load: 'refusal: ready',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'removing, remove',
    removed: 'never',
    recovered: 'ready',
  },
  failed: {
    load: 'fetching, fetch',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'removing, remove',
    removed: 'never',
    recovered: 'failed',
  },
  removing: {
    load: 'refusal: busy',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'refusal: busy',
    removed: 'absent',
    recovered: 'removing, remove',
  },
};

t.test('each event does in each state what the table says', async (t) => {
  for (const [from, row] of Object.entries(TABLE))
    for (const [name, expected] of Object.entries(row) as [ImageEvent['type'], string][])
      t.equal(outcomeOf(STATES[from], EVENTS[name]), expected, `${from}: ${name}`);
});

t.test('an image that failed says with what code and why', async (t) => {
  const step = stepImage({ name: 'fetching' }, EVENTS.failed);
  t.match(step, { state: { name: 'failed', code: 'InvalidImage', reason: 'it is cut off' } });
});

function outcomeOf(state: ImageState | undefined, event: ImageEvent): string {
  try {
    const step = stepImage(state, event);
    if ('refusal' in step) return `refusal: ${step.refusal}`;
    return [step.state?.name ?? 'absent', ...step.effects.map((effect) => effect.do)].join(', ');
  } catch (error) {
    if (error instanceof ImageTransitionError) return 'never';
    throw error;
  }
}
