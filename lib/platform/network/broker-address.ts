/**
 * The address of RabbitMQ, as Triton writes it: `user:password:host:port`. Pure. User and password
 * may be left out, and so may the port.
 */
export interface BrokerAddress {
  user: string;
  password: string;
  host: string;
  port: number;
}

const FORM = /^(?:([^:\s]{1,200}):([^:\s]{1,200}):)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::(\d{1,5}))?$/;
const DEFAULT_PORT = 5672;
const MAX_PORT = 65_535;

/**
 * @throws TypeError that says what is wrong. It never contains the text, which may hold a password.
 */
export function parseBrokerAddress(text: string): BrokerAddress {
  const [, user = 'guest', password = 'guest', host, port = String(DEFAULT_PORT)] = FORM.exec(text) ?? [];
  if (host === undefined || Number(port) > MAX_PORT || Number(port) === 0)
    throw new TypeError('is neither USER:PASSWORD:HOST:PORT nor HOST:PORT');
  return { user, password, host, port: Number(port) };
}

/** The same form again, whole. */
export const formatBrokerAddress = ({ user, password, host, port }: BrokerAddress): string =>
  `${user}:${password}:${host}:${port}`;
