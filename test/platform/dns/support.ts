import type { Test } from 'tap';
import { NameServer, type NameServerDeps } from '../../../lib/platform/dns/name-server.ts';
import type { ZoneInstance } from '../../../lib/platform/dns/zone.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

export const service = 'cnapi.local.cnapi.internal';

/** Instances at 127.0.0.1:8080, 127.0.0.2:8081 and so on. */
export function instancesNumbering(count: number): ZoneInstance[] {
  return Array.from({ length: count }, (_, n) => ({
    uuid: `11111111-1111-4111-8111-${String(n).padStart(12, '0')}`,
    host: `127.0.0.${n + 1}`,
    port: 8080 + n,
  }));
}

export function newNameServer(instances: readonly ZoneInstance[], options: Partial<NameServerDeps> = {}) {
  return new NameServer({
    host: '127.0.0.1',
    port: 0,
    zone: { datacenter: 'local', domain: 'cnapi.internal' },
    instances: () => instances,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
    ...options,
  });
}

export async function startNameServer(
  t: Test,
  instances: readonly ZoneInstance[],
  options: Partial<NameServerDeps> = {},
): Promise<NameServer> {
  const server = newNameServer(instances, options);
  await server.start();
  t.teardown(() => server.stop());
  return server;
}
