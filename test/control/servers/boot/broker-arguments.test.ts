import t from 'tap';
import { BrokerArguments, brokerArguments } from '../../../../lib/control/servers/boot/broker-arguments.ts';
import { parseBrokerAddress } from '../../../../lib/platform/network/broker-address.ts';
import { systemClock as clock } from '../../../../lib/platform/time/clock.ts';

t.test('the kernel arguments of a broker', async (t) => {
  const rows: [string, string | undefined, object][] = [
    ['u:p:10.0.0.20:5673', undefined, { rabbitmq: 'u:p:10.0.0.20:5673' }],
    ['10.0.0.20', undefined, { rabbitmq: 'guest:guest:10.0.0.20:5672' }],
    ['localhost', undefined, { rabbitmq: 'guest:guest:localhost:5672', rabbitmq_dns: 'guest:guest:localhost:5672' }],
    ['u:p:mq.dc:5672', '10.0.0.20', { rabbitmq: 'u:p:10.0.0.20:5672', rabbitmq_dns: 'u:p:mq.dc:5672' }],
    ['u:p:mq.dc:5672', undefined, { rabbitmq: 'u:p:mq.dc:5672', rabbitmq_dns: 'u:p:mq.dc:5672' }],
  ];
  for (const [text, address, expected] of rows)
    t.strictSame(brokerArguments(parseBrokerAddress(text), address), expected, text);
});

t.test('a name is looked up once for requests at the same time, and may be unknown', async (t) => {
  const broker = new BrokerArguments(parseBrokerAddress('u:p:no-such-name.invalid:1'), { clock });
  const [one, other] = await Promise.all([broker.read(), broker.read()]);
  t.strictSame(one, { rabbitmq: 'u:p:no-such-name.invalid:1', rabbitmq_dns: 'u:p:no-such-name.invalid:1' });
  t.strictSame(other, one);
  const local = await new BrokerArguments(parseBrokerAddress('localhost'), { clock }).read();
  t.equal(local.rabbitmq, local.rabbitmq_dns);
});
