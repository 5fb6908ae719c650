/** Checks whether the AMQP broker of Ur can be used. Without one there is nothing to check. */
import { BrokerConnection } from '../../platform/amqp/broker-connection.ts';
import { silentLogger } from '../../platform/log.ts';
import { type CheckInput, type Finding, findings } from './finding.ts';

const exchange = 'amq.topic';
const ONLINE_WITHIN_MS = 5_000;
const NEVER = new AbortController().signal;

export async function checkBroker({ config, clock, random }: CheckInput): Promise<Finding[]> {
  const part = findings('amqp');
  if (config.amqpUrl === undefined) return [];
  const connection = new BrokerConnection({
    url: config.amqpUrl,
    name: 'cnapi doctor',
    setUp: async (channel) => {
      await channel.checkExchange(exchange);
    },
    probe: { exchange: exchange, routingKey: 'cnapi.doctor' },
    clock,
    random,
    log: silentLogger,
  });
  connection.start();
  const beganAt = clock.now();
  const channel = await connection.whenOnline(ONLINE_WITHIN_MS, NEVER);
  const tookMs = clock.now() - beganAt;
  const { failure } = connection;
  await connection.stop();
  if (channel !== undefined) return [part.ok(`the AMQP broker can be used (${tookMs.toFixed(0)} ms)`)];
  return [
    part.warn(
      `the AMQP broker cannot be used: ${failure ?? 'it does not answer'}`,
      'see that amqpUrl names it with its password, that it runs, and that it can be reached; only servers without an agent need it',
    ),
  ];
}
