import t from 'tap';
import {
  type StreamEffect,
  type StreamEvent,
  type StreamState,
  stepStream,
} from '../../../lib/control/streams/stream-state.ts';

const cut: StreamEvent = { type: 'cut', code: 'C', message: 'm' };
const told = (code: string) => `tell ${code}`;
const shown = (effect: StreamEffect) => (effect.do === 'tell' ? told(effect.code) : effect.do);

/** The next state and what is done; `-`: the event changes nothing. */
const table: Record<StreamState, Record<string, string>> = {
  waiting: {
    joined: 'open',
    status: '-',
    late: `ended: ${told('StreamTimeout')}`,
    'agent closed': '-',
    'caller closed': 'ended',
    cut: `ended: ${told('C')}`,
  },
  open: {
    joined: '-',
    status: 'reported',
    late: '-',
    'agent closed': `ended: ${told('StreamLost')}`,
    'caller closed': 'ended: close agent',
    cut: `ended: ${told('C')}, close agent`,
  },
  reported: {
    joined: '-',
    status: '-',
    late: '-',
    'agent closed': 'ended: close caller',
    'caller closed': 'ended: close agent',
    cut: 'ended: close caller, close agent',
  },
  ended: { joined: '-', status: '-', late: '-', 'agent closed': '-', 'caller closed': '-', cut: '-' },
};

for (const [state, row] of Object.entries(table)) {
  t.test(`a stream that is ${state}`, async (t) => {
    for (const [type, expected] of Object.entries(row)) {
      const event = type === 'cut' ? cut : ({ type } as StreamEvent);
      const step = stepStream(state as StreamState, event);
      const done = step.effects.map(shown).join(', ');
      t.equal(step.state === state && done === '' ? '-' : `${step.state}${done ? `: ${done}` : ''}`, expected, type);
    }
  });
}
