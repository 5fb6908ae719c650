/** The table of instances, for `cnapi instances` and `cnapi watch`. Pure. */
import type { Instance } from '../../protocol/api/instances.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export const INSTANCE_COLUMNS: readonly Column<Instance>[] = [
  { head: 'INSTANCE', of: ({ uuid }) => uuid, abbreviates: true },
  { head: 'URL', of: ({ url }) => url, shrinks: true },
  { head: 'STATE', of: ({ state }) => state },
  { head: 'PID', of: ({ pid }) => pid, align: 'right' },
  { head: 'AGENTS', of: ({ agents }) => agents, align: 'right' },
  { head: 'BEAT', of: ({ lease_age_ms }) => shortDuration(lease_age_ms), align: 'right', optional: 'early' },
  { head: 'VERSION', of: ({ version }) => version, optional: 'early' },
  { head: 'STARTED', of: ({ started }) => shortTime(started), optional: 'early' },
];
