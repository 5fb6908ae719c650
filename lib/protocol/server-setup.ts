/** What a set-up of a server may name, for the routes and for the agent. Pure. */

export const MAX_SETUP_SCRIPT_CHARS = 512 * 1024;

/** The layouts of Triton's zpools. */
export const DISK_LAYOUTS = ['single', 'mirror', 'raidz1', 'raidz2', 'raidz3'] as const;

/** Parameters of a set-up that lays out the disks of the server. Agents of this project do not. */
export const DISK_PARAMS = [
  'disk_layout',
  'disk_exclude',
  'disk_spares',
  'disk_width',
  'disk_cache',
  'encryption_enabled',
] as const;
