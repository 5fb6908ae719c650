/** Instances as callers see them. Pure. */
import type { Instance } from '../../../protocol/api/instances.ts';
import type { LiveInstance } from '../roster.ts';

export function toInstance(instance: LiveInstance): Instance {
  return {
    uuid: instance.cnapiUuid,
    run: instance.run,
    url: instance.url,
    pid: instance.pid,
    version: instance.version,
    state: instance.isDraining ? 'draining' : 'live',
    agents: instance.agents,
    admission: instance.admission ?? null,
    lease_age_ms: instance.leaseAgeMs,
    started: instance.startedAt.toISOString(),
  };
}
