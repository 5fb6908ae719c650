import t from 'tap';
import {
  type PortEffect,
  type PortEvent,
  type PortState,
  stepPort,
} from '../../../../lib/control/vms/docker/docker-port-state.ts';

type EventType = PortEvent['type'];
type Row = [name: string, state: PortState, event: EventType, next: PortState, ...effects: PortEffect['do'][]];

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
const EVENTS: EventType[] = ['connected', 'ended', 'late', 'broken', 'cut'];

for (const [name, state, type, next, ...effects] of changes)
  t.test(name, (t) => {
    t.same(stepPort(state, { type }), { state: next, effects: effects.map((effect) => ({ do: effect })) });
    t.end();
  });

t.test('no other event changes anything', (t) => {
  for (const state of STATES)
    for (const type of EVENTS) {
      if (changes.some((row) => row[1] === state && row[2] === type)) continue;
      t.same(stepPort(state, { type }), { state, effects: [] }, `${type} in ${state}`);
    }
  t.end();
});
