/** The rules for single words of a specification. Messages follow the name of the field. */
import { posix } from 'node:path';
import { z } from 'zod';

/**
 * Bytes of one argument or `NAME=VALUE`, as execve takes it with the final NUL (MAX_ARG_STRLEN).
 */
export const MAX_WORD_BYTES = 128 * 1024 - 1;
/** The limits of the kernel (PATH_MAX with the final NUL, NAME_MAX, IFNAMSIZ, HOST_NAME_MAX). */
const MAX_PATH_BYTES = 4_095;
const MAX_PATH_PART_BYTES = 255;
const MAX_INTERFACE_CHARS = 15;
const MAX_HOSTNAME_CHARS = 64;
const MAX_LABEL_CHARS = 63;
const MAX_QUOTED_CHARS = 100;

export const byteLength = (text: string): number => Buffer.byteLength(text);

export const quoted = (text: string): string =>
  JSON.stringify(text.length > MAX_QUOTED_CHARS ? `${text.slice(0, MAX_QUOTED_CHARS)}…` : text);

/** A text that the kernel and a JSON file keep as it is. */
export const unicodeText = z
  .string()
  .refine((one) => !one.includes('\0'), 'holds a NUL character; remove it')
  .refine((one) => one.isWellFormed(), 'holds half of a surrogate pair; write valid Unicode');

export const word = unicodeText.refine(
  (one) => byteLength(one) <= MAX_WORD_BYTES,
  `is longer than ${MAX_WORD_BYTES} bytes; pass it in a file`,
);

export const containerId = z
  .string()
  .regex(
    /^[0-9a-z][0-9a-z-]{0,63}$/,
    'is not an id; write at most 64 lower-case letters, digits and dashes, and begin with a letter or digit',
  );

/** RFC 1123, with the length that Linux takes. */
export const hostname = z
  .string()
  .refine(
    (name) => name.length <= MAX_HOSTNAME_CHARS && name.split('.').every(isLabel),
    `is not a host name; write at most ${MAX_HOSTNAME_CHARS} letters, digits, dashes and dots, as in web-1.example`,
  );

const isLabel = (label: string) =>
  label.length <= MAX_LABEL_CHARS && /^[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?$/.test(label);

/** The host name of a container that asks for none. */
export const hostnameOf = (id: string): string => id.slice(0, MAX_LABEL_CHARS).replace(/-+$/, '');

/** An absolute path in its normal form. */
export const path = unicodeText.superRefine((one, context) => {
  const reason = reasonNotAPath(one);
  if (reason !== undefined) context.addIssue(reason);
});

function reasonNotAPath(one: string): string | undefined {
  if (!one.startsWith('/')) return 'is not an absolute path; begin with /';
  if (byteLength(one) > MAX_PATH_BYTES) return `is longer than ${MAX_PATH_BYTES} bytes; use a shorter path`;
  if (one.split('/').some((part) => byteLength(part) > MAX_PATH_PART_BYTES))
    return `has a part of more than ${MAX_PATH_PART_BYTES} bytes; use shorter names`;
  const normal = posix.resolve(one);
  return normal === one ? undefined : `is not in its normal form; write ${quoted(normal)}`;
}

const SYSTEM_PLACES = ['/proc', '/sys', '/dev'];

const isBelow = (one: string, place: string) => one === place || one.startsWith(`${place}/`);

/**
 * Where a program begins. Below /proc it could name an open directory of the server that an old
 * runtime has not closed (CVE-2024-21626).
 */
export const workingDirectory = path.refine(
  (one) => !SYSTEM_PLACES.some((place) => isBelow(one, place)),
  `must not be ${SYSTEM_PLACES.join(', ')} or below; choose another place`,
);

export const mountTarget = path.refine(
  (one) => one !== '/' && !SYSTEM_PLACES.some((place) => isBelow(one, place)),
  `must not be /, nor ${SYSTEM_PLACES.join(', ')} or below; choose another place`,
);

/** Names that the kernel or its settings use otherwise. */
const RESERVED_INTERFACES = ['lo', 'all', 'default'];

export const interfaceName = z
  .string()
  .refine(
    (name) =>
      /^[A-Za-z][\w.-]*$/.test(name) && name.length <= MAX_INTERFACE_CHARS && !RESERVED_INTERFACES.includes(name),
    `is not an interface name; write at most ${MAX_INTERFACE_CHARS} letters, digits, dots, dashes and underscores, as in eth0`,
  );

/** Lower case. */
export const mac = z
  .string()
  .transform((one) => one.toLowerCase())
  .refine(
    (one) => /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(one) && isUnicast(one),
    'is not a unicast MAC address; write six bytes as in 02:00:0a:00:00:05, the first one even',
  );

const isUnicast = (one: string) => Number.parseInt(one.slice(0, 2), 16) % 2 === 0 && one !== '00:00:00:00:00:00';

/**
 * Names of environment variables as Kubernetes takes them: execve itself refuses only `=` and NUL.
 */
export const variableName = z
  .string()
  .max(1_024)
  .regex(/^[ -<>-~]+$/, 'is not a variable name; write printable ASCII characters without =');

/** JavaScript objects lose this name, so it is refused instead. */
export const record = <Value extends z.ZodType>(key: z.ZodType<string, string>, value: Value) =>
  z
    .unknown()
    .superRefine((one, context) => {
      if (Object.hasOwn(Object(one), '__proto__'))
        context.addIssue({ code: 'custom', path: ['__proto__'], message: 'cannot be a name; choose another one' });
    })
    .pipe(z.record(key, value));
