/**
 * Boot modules: small files that the boot loader hands to the kernel of a server. Pure. The rules
 * and their texts are those of Triton's CNAPI, except for the bounds, and for paths that can name
 * no file of their own in the folder of modules.
 */
import { isJsonObject } from '../../../protocol/json/bounded-json.ts';
import { InvalidArgumentError } from '../../request-errors.ts';

interface BootModule {
  path: string;
  content: string;
  type: string;
}

/** Size limit of the decoded content. */
const MAX_MODULE_BYTES = 4096;
/** The limit is low because each list of servers reads the modules. */
const MAX_MODULES = 16;
const MAX_PATH_CHARS = 1000;
const MAX_SHOWN_CHARS = 200;

/** @throws InvalidArgumentError with everything that is wrong */
export function parseBootModules(values: readonly unknown[]): BootModule[] {
  if (values.length > MAX_MODULES)
    throw invalid([`There are ${values.length} modules; a server may have at most ${MAX_MODULES}`]);
  const parsed = values.map(parseModule);
  const errors = parsed.flatMap((one) => ('errors' in one ? one.errors : []));
  if (errors.length > 0) throw invalid(errors);
  const paths = values.map((value) => (value as BootModule).path);
  const repeated = new Set(paths.filter((path, index) => paths.indexOf(path) !== index));
  if (repeated.size > 0) throw invalid([...repeated].map((path) => `Repeated path for boot_module: '${shown(path)}'`));
  return parsed.flatMap((one) => ('module' in one ? [one.module] : []));
}

function parseModule(value: unknown): { module: BootModule } | { errors: string[] } {
  if (!isJsonObject(value)) return { errors: [unexpected(value)] };
  const { path, content, type = 'base64' } = value;
  if (typeof path !== 'string' || typeof content !== 'string' || typeof type !== 'string')
    return { errors: [unexpected(value)] };
  const name = shown(path);
  const errors: string[] = [];
  if (type !== 'base64') errors.push(`Unsupported type ${shown(type)} for module '${name}'`);
  if (!isNormalPath(path)) errors.push(`Invalid path for boot_module: '${name}' (path cannot contain '.' or '..')`);
  else if (!isFilePath(path))
    errors.push(`Invalid path for boot_module: '${name}' (path must be relative, name a file and be printable)`);
  const decoded = Buffer.from(content, 'base64');
  if (decoded.byteLength > MAX_MODULE_BYTES) errors.push(`Module '${name}' exceeds the maximum allowed size of 4KB`);
  else if (decoded.toString('base64') !== content) errors.push(`Contents for module '${name}' must be base64 encoded`);
  return errors.length > 0 ? { errors } : { module: { path, content, type } };
}

const shown = (text: string): string => text.slice(0, MAX_SHOWN_CHARS);

/** Boot loaders write the paths into a list, one a line. Triton takes all of them. */
const isFilePath = (path: string): boolean => !path.startsWith('/') && !path.endsWith('/') && !/\p{Cc}/u.test(path);

/**
 * Whether the path is normalised and stays in the folder of modules. Normalisation would keep a
 * leading `..`.
 */
const isNormalPath = (path: string): boolean =>
  path !== '' &&
  path.length <= MAX_PATH_CHARS &&
  !path.includes('//') &&
  !path.split('/').some((part) => part === '.' || part === '..');

const unexpected = (value: unknown): string =>
  `Unexpected format for boot_module: ${JSON.stringify(value).slice(0, MAX_SHOWN_CHARS)}`;

function invalid(errors: readonly string[]): InvalidArgumentError {
  return new InvalidArgumentError(`Values provided for boot_modules contain errors: ${errors.join(',\n')}`);
}
