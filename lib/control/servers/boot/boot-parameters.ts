/**
 * With which parameters a server boots: what a request changes of them, and their form in an
 * answer. Pure. They are fields of the server's document, or of the record of defaults, from which
 * new servers copy them.
 */
import { isJsonObject, type JsonObject } from '../../../protocol/json/bounded-json.ts';
import { SECRET_MASK } from '../../../protocol/secret-params.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import { INITIAL_DEFAULTS, type ServerDefaults } from '../server.ts';
import { parseBootModules } from './boot-modules.ts';

/** What a request says. Absent: nothing. */
export interface BootChange {
  platform?: string | undefined;
  /** A null removes the argument; the same of flags. */
  kernelArgs?: JsonObject | undefined;
  kernelFlags?: JsonObject | undefined;
  modules?: readonly unknown[] | undefined;
  console?: string | undefined;
  serial?: string | undefined;
}

/** Size limit of all kernel arguments of a server, or of all its flags, as JSON. */
const MAX_ARGUMENT_BYTES = 16 * 1024;

/** Everything that the request leaves out has its initial value. @throws InvalidArgumentError */
export function replaceBoot(change: BootChange, latestPlatform: string): ServerDefaults {
  return mergeBoot({ ...INITIAL_DEFAULTS, boot_platform: latestPlatform }, change);
}

/** Everything that the request leaves out stays. @throws InvalidArgumentError */
export function mergeBoot(before: ServerDefaults, change: BootChange): ServerDefaults {
  const { platform, kernelArgs, kernelFlags, modules, console, serial } = change;
  const after = {
    boot_platform: platform ?? before.boot_platform,
    boot_params: merged(before.boot_params, kernelArgs),
    kernel_flags: merged(before.kernel_flags, kernelFlags),
    boot_modules: modules === undefined ? before.boot_modules : parseBootModules(modules),
    default_console: console ?? before.default_console,
    serial: serial ?? before.serial,
  };
  checkArguments('kernel_args', after.boot_params);
  checkArguments('kernel_flags', after.kernel_flags);
  return after;
}

/** Each list of servers reads them. @throws InvalidArgumentError */
export function checkArguments(name: string, values: JsonObject): void {
  const bytes = Buffer.byteLength(JSON.stringify(values));
  if (bytes > MAX_ARGUMENT_BYTES)
    throw new InvalidArgumentError(`${name} has ${bytes} bytes as JSON; a server may have ${MAX_ARGUMENT_BYTES}`);
}

function merged(before: JsonObject, change: JsonObject = {}): JsonObject {
  const after = new Map([...Object.entries(before), ...Object.entries(change)]);
  return Object.fromEntries([...after].filter(([, value]) => value !== null));
}

/** The form of an answer. `given` are kernel arguments that the instance adds. */
export function toBootParams(fields: ServerDefaults, given: JsonObject) {
  const { boot_platform, boot_params, kernel_flags, boot_modules, default_console, serial } = fields;
  return {
    platform: boot_platform,
    kernel_args: { ...boot_params, ...given },
    kernel_flags,
    boot_modules,
    default_console,
    serial,
  };
}

/**
 * What a kernel is given may hold passwords, and modules keys: only those who may change them see
 * them.
 */
interface BootSecrets {
  boot_params?: unknown;
  boot_modules?: unknown;
  kernel_flags?: unknown;
  /** `Boot Parameters` of a sysinfo are the arguments with which the server did boot. */
  sysinfo?: unknown;
}

export function withoutBootSecrets<Fields extends BootSecrets>(fields: Fields): Fields {
  const { boot_params, boot_modules, kernel_flags, sysinfo } = fields;
  return {
    ...fields,
    ...(boot_params !== undefined && { boot_params: masked(boot_params) }),
    ...(boot_modules !== undefined && { boot_modules: (boot_modules as unknown[]).map(withoutContent) }),
    ...(kernel_flags !== undefined && { kernel_flags: masked(kernel_flags) }),
    ...(sysinfo !== undefined && { sysinfo: withoutArguments(sysinfo) }),
  };
}

/** Kernel arguments that are fields of a server as well. */
const PUBLIC_ARGUMENTS = ['headnode', 'hostname'];

function withoutArguments(sysinfo: unknown): unknown {
  if (!isJsonObject(sysinfo) || !Object.hasOwn(sysinfo, REPORTED)) return sysinfo;
  return { ...sysinfo, [REPORTED]: masked(sysinfo[REPORTED], PUBLIC_ARGUMENTS) };
}

const REPORTED = 'Boot Parameters';

function masked(values: unknown, shown: readonly string[] = []): unknown {
  if (!isJsonObject(values)) return SECRET_MASK;
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, shown.includes(name) ? value : SECRET_MASK]),
  );
}

const withoutContent = (module: unknown): unknown =>
  typeof module === 'object' && module !== null ? { ...module, content: SECRET_MASK } : SECRET_MASK;
