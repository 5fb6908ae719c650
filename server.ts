/** One API instance: `node server.ts --config FILE`. Runs until it is stopped. */
import { parseArgs } from 'node:util';
import { App } from './lib/control/app.ts';
import { loadConfig } from './lib/control/config.ts';
import { CnapiError } from './lib/platform/errors.ts';
import { createLogger } from './lib/platform/log.ts';
import { systemRandom } from './lib/platform/random.ts';
import { systemClock } from './lib/platform/time/clock.ts';

const HELP = `Usage: node server.ts [--config FILE]

One cnapi API instance. FILE is JSON with camelCase keys; environment variables CNAPI_… override it
(databaseUrl is CNAPI_DATABASE_URL). The keys are described in docs/configuration.md.
SIGTERM drains it: its agents go to other instances, its callers are answered, then it ends; at most 15 s after
drainWaitsMs, which makes 75 s by default.
SIGINT stops it at once. SIGHUP reloads the TLS certificate, which it also reloads by itself when the files change.
`;

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { config: { type: 'string' }, help: { type: 'boolean', short: 'h' } } });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  const loaded = loadConfig(values.config, process.env);
  const config = { ...loaded, cnapiUuid: loaded.cnapiUuid ?? systemRandom.uuid() };
  const log = createLogger('cnapi', config.logLevel, { cnapi_uuid: config.cnapiUuid });
  const app = new App({ config, log, clock: systemClock, random: systemRandom });

  process.on('SIGINT', () => {
    log.info('instance: stopping');
    void app.stop();
  });
  process.on('SIGTERM', () => app.drain('SIGTERM'));
  process.on('SIGHUP', () => void app.reload());
  await app.start();
  await app.stopped;
}

/** An address that cannot be listened on; no such database, user, password or permission. */
const FOR_USERS = ['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES', 'ENOTFOUND', '3D000', '28000', '28P01', '42501'];

/** One line for an error that the user can fix; any other error is a defect: with its stack. */
function explain(error: unknown): string {
  const { code = '', message, stack } = error as Error & { code?: string };
  const isForUsers = error instanceof CnapiError || code.startsWith('ERR_PARSE_ARGS') || FOR_USERS.includes(code);
  const hint = code.startsWith('ERR_PARSE_ARGS') ? ' (--help lists the options)' : '';
  return `cnapi: ${isForUsers ? message : (stack ?? String(error))}${hint}\n`;
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(explain(error));
    process.exit(1);
  },
);
