/** Deliberate defects of VMs, for `defects.ts`. */
import type { Defect } from './defects.ts';

export const vmDefects: readonly Defect[] = [
  {
    name: 'a VM may be claimed twice',
    breaks: 'I3',
    firstSeed: 1,
    kind: 'vms-',
    find: "  raise exception using errcode = 'CN409', hint = 'VmExists'",
    put: "  return null;\n  raise exception using errcode = 'CN409', hint = 'VmExists'",
    also: {
      find: 'if (value.server_uuid !== request.serverUuid || createKey === undefined)',
      put: 'if (createKey === undefined)',
    },
  },
  {
    name: 'the VMs that a report leaves out stay',
    breaks: 'I6',
    firstSeed: 12,
    kind: 'vms-',
    find: 'where v._key = any (held) and r.server_uuid = v.server_uuid and not r.vms ? v._key\n      and not',
    put: 'where false\n      and not',
  },
];
