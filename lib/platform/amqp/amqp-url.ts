/**
 * The address of an AMQP 0-9-1 broker: `amqp://[user:password@]host[:port][/vhost]`, or `amqps://…`
 * with TLS. Pure. Used by the configuration to check the URL, and by `broker-connection.ts`.
 */

const HEARTBEAT_SECONDS = 10;

/**
 * Returns the URL with cnapi's own heartbeat: a broker that says nothing for two of them is lost.
 * @throws TypeError that says what is wrong. It never contains the URL, which may hold a password.
 */
export function parseAmqpUrl(text: string): string {
  if (!/^amqps?:\/\//.test(text) || !URL.canParse(text))
    throw new TypeError('is not an amqp://[USER:PASSWORD@]HOST[:PORT][/VHOST]');
  const url = new URL(text);
  if (url.hostname === '') throw new TypeError('names no host');
  if (url.search !== '' || url.hash !== '') throw new TypeError('has parameters; it may have none');
  url.searchParams.set('heartbeat', String(HEARTBEAT_SECONDS));
  return url.href;
}
