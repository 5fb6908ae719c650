import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import t from 'tap';
import type { Actor } from '../../../../lib/control/access/token.ts';
import { Exchange } from '../../../../lib/control/http/answer/exchange.ts';
import { CallerLimits } from '../../../../lib/control/http/limits/caller-limits.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';

const LIMITS = {
  access: 'tokens',
  answerMemoryMiB: 1,
  answerMemoryPerCallerMiB: 1,
  eventStreamsPerCaller: 1,
  waitsPerCaller: 1,
  logLinesPerSource: 0,
  requestsPerSecond: 0,
} as const;

const clock = { ...systemClock, now: () => 0 };

const client = (uuid: string): Actor => ({
  name: 'a',
  roles: [],
  principal: { kind: 'client', uuid, name: 'a', publicKey: 'pem' },
});

function exchangeFrom(remoteAddress: string, limits: CallerLimits): Exchange {
  const socket = Object.defineProperty(new Socket(), 'remoteAddress', { value: remoteAddress });
  const request = new IncomingMessage(socket);
  const deps = { version: '1.0.0', clock, random, log, isLeaving: () => false, limits };
  return new Exchange(request, new ServerResponse(request), deps);
}

t.test('quotas count who signed a request by the principal, whatever its address', async (t) => {
  const limits = new CallerLimits(LIMITS, { clock, log });
  const waitFrom = (address: string, actor: Actor | undefined) => {
    const exchange = exchangeFrom(address, limits);
    exchange.actor = actor;
    exchange.countLongRequest('wait');
  };
  waitFrom('10.0.0.1', client('web'));
  waitFrom('10.0.0.1', client('db'));
  waitFrom('10.0.0.1', undefined);
  t.throws(() => waitFrom('10.0.0.2', client('web')), { message: /already has 1 waits/ });
});

t.test('a body is charged to the address until it is the signed one, and so is what is dropped', async (t) => {
  const address = '10.0.0.1';
  const actor = client('web');
  const dropLargeBody = (exchange: Exchange) => {
    exchange.dropBody();
    exchange.request.emit('data', Buffer.alloc(100_000));
  };
  const rows: [name: string, work: (exchange: Exchange) => void, charged: string[]][] = [
    ['a body that may be another', () => undefined, ['address']],
    ['the signed body', (exchange) => exchange.bodyIsSigned(), ['principal']],
  ];
  for (const [name, work, charged] of rows) {
    const limits = new CallerLimits({ ...LIMITS, requestsPerSecond: 1 }, { clock, log });
    const chargedCallers = () =>
      Object.entries({ address: { actor: undefined, address }, principal: { actor, address: '10.0.0.2' } })
        .filter(([, caller]) => {
          try {
            limits.bodies.check(caller, 0);
            return false;
          } catch {
            return true;
          }
        })
        .map(([caller]) => caller);
    const exchange = exchangeFrom(address, limits);
    exchange.signer = actor;
    exchange.chargeBody({ bytes: 100_000, values: 0 });
    work(exchange);
    t.same(chargedCallers(), charged, name);
    const next = exchangeFrom(address, limits);
    next.signer = actor;
    t.throws(
      () => next.checkEarlierBodies(),
      { code: 'TooManyRequests' },
      `${name}: has used up the quota, so no other is read`,
    );
    dropLargeBody(exchange);
    t.ok(chargedCallers().includes('address'), `${name}: the address is charged for what is dropped`);
  }
});
