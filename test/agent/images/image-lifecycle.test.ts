import t from 'tap';
import { type ImageEvent, type ImageState, nextImageStep } from '../../../lib/agent/images/image-lifecycle.ts';

const STATES: Readonly<Record<string, ImageState | undefined>> = {
  absent: undefined,
  fetching: { name: 'fetching' },
  unpacking: { name: 'unpacking' },
  ready: { name: 'ready' },
  failed: { name: 'failed', code: 'ImageSourceFailed', reason: 'cut' },
  removing: { name: 'removing' },
};

const EVENTS: Readonly<Record<ImageEvent['name'], ImageEvent>> = {
  load: { name: 'load' },
  fetched: { name: 'fetched' },
  unpacked: { name: 'unpacked' },
  failed: { name: 'failed', code: 'InvalidImage', reason: 'it is cut off' },
  remove: { name: 'remove' },
  removed: { name: 'removed' },
  restarted: { name: 'restarted' },
};

/** The state afterwards and the work; `refused` and why; or `never`. */
const TABLE: Readonly<Record<string, Readonly<Record<ImageEvent['name'], string>>>> = {
  absent: {
    load: 'fetching, fetch',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'refused: absent',
    removed: 'never',
    restarted: 'never',
  },
  fetching: {
    load: 'refused: busy',
    fetched: 'unpacking, unpack',
    unpacked: 'never',
    failed: 'failed, none',
    remove: 'refused: busy',
    removed: 'never',
    restarted: 'failed, none',
  },
  unpacking: {
    load: 'refused: busy',
    fetched: 'never',
    unpacked: 'ready, none',
    failed: 'failed, none',
    remove: 'refused: busy',
    removed: 'never',
    restarted: 'failed, none',
  },
  ready: {
    load: 'refused: ready',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'removing, remove',
    removed: 'never',
    restarted: 'ready, none',
  },
  failed: {
    load: 'fetching, fetch',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'removing, remove',
    removed: 'never',
    restarted: 'failed, none',
  },
  removing: {
    load: 'refused: busy',
    fetched: 'never',
    unpacked: 'never',
    failed: 'never',
    remove: 'refused: busy',
    removed: 'absent, none',
    restarted: 'removing, remove',
  },
};

t.test('each event does in each state what the table says', async (t) => {
  for (const [from, row] of Object.entries(TABLE))
    for (const [name, expected] of Object.entries(row) as [ImageEvent['name'], string][])
      t.equal(outcomeOf(STATES[from], EVENTS[name]), expected, `${from}: ${name}`);
});

t.test('an image that failed says with what code and why', async (t) => {
  const step = nextImageStep({ name: 'fetching' }, EVENTS.failed);
  t.match(step, { state: { name: 'failed', code: 'InvalidImage', reason: 'it is cut off' } });
});

function outcomeOf(state: ImageState | undefined, event: ImageEvent): string {
  try {
    const step = nextImageStep(state, event);
    return 'refused' in step ? `refused: ${step.refused}` : `${step.state?.name ?? 'absent'}, ${step.work}`;
  } catch {
    return 'never';
  }
}
