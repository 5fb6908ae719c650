import t from 'tap';
import {
  type PortEffect,
  type PortEvent,
  type PortState,
  stepPort,
} from '../../../lib/control/docker/docker-port-state.ts';

type Row = [name: string, state: PortState, event: PortEvent, next: PortState, ...effects: PortEffect[]];

const changes: Row[] = [
  ['the caller connects', 'listening', 'connected', 'connected', 'accept'],
  ['the stream ends before the caller connects', 'listening', 'ended', 'kept'],
  ['the caller connects after the end', 'kept', 'connected', 'flushing', 'accept', 'flush'],
  ['nobody connects', 'listening', 'late', 'closed', 'close'],
  ['nobody connects after the end', 'kept', 'late', 'closed', 'close'],
  ['the stream ends', 'connected', 'ended', 'flushing', 'flush'],
  ['the caller leaves', 'connected', 'broken', 'closed', 'close'],
  ['the caller has taken everything', 'flushing', 'broken', 'closed', 'close'],
  ['the port is cut before a caller', 'listening', 'cut', 'closed', 'close'],
  ['the port is cut after the end', 'kept', 'cut', 'closed', 'close'],
  ['the connection is cut', 'connected', 'cut', 'closed', 'close'],
  ['the connection is cut while it is flushed', 'flushing', 'cut', 'closed', 'close'],
  ['a second caller, while the first is there', 'connected', 'connected', 'connected', 'refuse'],
  ['a second caller, while the first is flushed', 'flushing', 'connected', 'flushing', 'refuse'],
  ['a caller of a closed port', 'closed', 'connected', 'closed', 'refuse'],
];

const STATES: PortState[] = ['listening', 'kept', 'connected', 'flushing', 'closed'];
const EVENTS: PortEvent[] = ['connected', 'ended', 'late', 'broken', 'cut'];

for (const [name, state, event, next, ...effects] of changes)
  t.test(name, (t) => {
    t.same(stepPort(state, event), { state: next, effects });
    t.end();
  });

t.test('no other event changes anything', (t) => {
  for (const state of STATES)
    for (const event of EVENTS) {
      if (changes.some((row) => row[1] === state && row[2] === event)) continue;
      t.equal(stepPort(state, event), undefined, `${event} in ${state}`);
    }
  t.end();
});
