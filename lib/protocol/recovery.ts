/**
 * Recovery configurations: what a server needs to unlock its encrypted zpool when its own token is
 * lost. Both ends name one by the digest of its template. Pure.
 */
import { createHash } from 'node:crypto';

export const RECOVERY_TASK = 'recovery_config';

/** Characters; a template has some hundred, and a token is a short text. */
export const MAX_TEMPLATE_CHARS = 64 * 1024;
export const MAX_RECOVERY_TOKEN_CHARS = 4096;

/** In hexadecimal. Sysinfo has it of the active and the staged configuration. */
export const templateDigest = (template: string): string => createHash('sha512').update(template).digest('hex');

/**
 * The uuid of a configuration: the beginning of the digest in the form of a version 5 (RFC 9562,
 * section 5.5).
 */
export function deriveRecoveryUuid(digest: string): string {
  const variant = ((Number.parseInt(digest[16] ?? '0', 16) & 0x3) | 0x8).toString(16);
  return [
    digest.slice(0, 8),
    digest.slice(8, 12),
    `5${digest.slice(13, 16)}`,
    `${variant}${digest.slice(17, 20)}`,
    digest.slice(20, 32),
  ].join('-');
}
