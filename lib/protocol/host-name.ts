/** Names of machines and VMs: RFC 1123, with the length that Linux takes. */
import { z } from 'zod';

const MAX_CHARS = 64;
const label = '[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?';

export const hostName = (missing?: string) =>
  z
    .string(missing)
    .max(MAX_CHARS, `is longer than ${MAX_CHARS} characters`)
    .regex(new RegExp(`^${label}(\\.${label})*$`), 'is not a host name; use letters, digits, dashes and dots');
