/**
 * The kernel arguments by which a server that boots finds RabbitMQ: `rabbitmq` has an address,
 * because the server may have no name server yet, and `rabbitmq_dns` has the name. Used by
 * `boot.ts`.
 */
import { isIP } from 'node:net';
import { lookUpHost } from '../../../platform/dns/host-lookup.ts';
import { type BrokerAddress, formatBrokerAddress } from '../../../platform/network/broker-address.ts';
import type { Clock } from '../../../platform/time/clock.ts';

/** The caller waits for it. */
const LOOKUP_MS = 2_000;

export class BrokerArguments {
  readonly #broker: BrokerAddress;
  readonly #lookUp: (name: string) => Promise<readonly string[]>;
  #asked: Promise<readonly string[]> | undefined;

  constructor(broker: BrokerAddress, { clock }: { clock: Clock }) {
    this.#broker = broker;
    this.#lookUp = (name) => lookUpHost(name, { clock, withinMs: LOOKUP_MS });
  }

  /** Requests at the same time share one lookup, which takes a thread of the process. */
  async read(): Promise<Record<string, string>> {
    const { host } = this.#broker;
    if (isIP(host) !== 0 || host === 'localhost') return brokerArguments(this.#broker, undefined);
    this.#asked ??= this.#lookUp(host).finally(() => {
      this.#asked = undefined;
    });
    return brokerArguments(this.#broker, (await this.#asked)[0]);
  }
}

/** `address`: of the host, if it is a name that is known. */
export function brokerArguments(broker: BrokerAddress, address: string | undefined): Record<string, string> {
  const named = formatBrokerAddress(broker);
  if (isIP(broker.host) !== 0) return { rabbitmq: named };
  return { rabbitmq: formatBrokerAddress({ ...broker, host: address ?? broker.host }), rabbitmq_dns: named };
}
