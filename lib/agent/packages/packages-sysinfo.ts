/** What the sysinfo says of packages. */
import { definedFields } from '../../platform/defined-fields.ts';
import { type Sysinfo, TRITON_AGENTS } from '../machine/machine.ts';
import type { Packages } from './packages.ts';

/** Triton's agents come from images, and packages do not. */
const NO_IMAGE = '00000000-0000-0000-0000-000000000000';

export function packagesSysinfo(packages: Pick<Packages, 'list' | 'lastUpdate'>): Sysinfo {
  const others = packages.list().map(({ name, version }) => ({ name, version, image_uuid: NO_IMAGE }));
  const { version, from, outcome, reason } = packages.lastUpdate ?? {};
  const update = version === undefined ? undefined : { version, from, outcome, ...definedFields({ reason }) };
  return { 'SDC Agents': [...TRITON_AGENTS, ...others], ...definedFields({ 'CN Agent Update': update }) };
}
