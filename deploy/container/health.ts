/** The image's health check: 0 when the instance in this container answers /ping, by the configuration it was started with. */
import { readFileSync } from 'node:fs';
import { request as plainRequest } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { loadConfig } from '../../lib/control/config.ts';

/** What follows `--config` on the command line of process 1. */
function configFile(): string | undefined {
  const words = readFileSync('/proc/1/cmdline', 'utf8').split('\0');
  const at = words.indexOf('--config');
  return at < 0 ? words.find((word) => word.startsWith('--config='))?.slice('--config='.length) : words[at + 1];
}

const ANYWHERE: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
const { host, port, tlsCertFile } = loadConfig(configFile(), process.env);
const ask = tlsCertFile === undefined ? plainRequest : tlsRequest;
// The request stays within the container, so the certificate need not be verified.
const asked = {
  host: ANYWHERE[host] ?? host,
  port,
  path: '/ping',
  timeout: 4000,
  agent: false,
  rejectUnauthorized: false,
};
ask(asked, (response) => process.exit(response.statusCode === 200 ? 0 : 1))
  .on('timeout', () => process.exit(1))
  .on('error', () => process.exit(1))
  .end();
