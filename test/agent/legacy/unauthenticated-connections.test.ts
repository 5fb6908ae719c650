/** Which connections of unknown callers the agent's HTTP port keeps. */
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import t from 'tap';
import { UnauthenticatedConnections } from '../../../lib/agent/legacy/unauthenticated-connections.ts';
import { ManualClock } from '../../support/manual-clock.ts';

function connectionFrom(remoteAddress: string) {
  const socket = Object.assign(new EventEmitter(), {
    remoteAddress,
    isDestroyed: false,
    destroy() {
      socket.isDestroyed = true;
    },
  });
  return socket;
}

t.test('an IPv6 /64 is one source: its newest connections are kept, and those of others', async (t) => {
  const callers = new UnauthenticatedConnections(new ManualClock());
  const connect = (address: string) => {
    const socket = connectionFrom(address);
    callers.connected(socket as unknown as Socket);
    return socket;
  };
  const other = connect('2001:db8:0:1::1');
  const sockets = Array.from({ length: 60 }, (_, at) => connect(`2001:db8::${(at + 1).toString(16)}`));
  t.same(
    sockets.map(({ isDestroyed }) => isDestroyed),
    Array.from({ length: 60 }, (_, at) => at < 10),
  );
  t.notOk(other.isDestroyed);
});
