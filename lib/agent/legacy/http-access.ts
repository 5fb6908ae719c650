/**
 * Decides who may use the agent's HTTP port: callers with the token in DATA/http-token, callers
 * from the configured networks (legacy CNAPIs send no token), or everybody if configured so.
 * Created by main.ts, asked by http-port.ts.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import type { Logger } from '../../platform/log.ts';
import { Networks, normalizeAddress } from '../../platform/network/networks.ts';
import { ReloadedFile } from '../reloaded-file.ts';

export interface HttpAccess {
  admits(request: Pick<IncomingMessage, 'headers' | 'socket'>): boolean;
}

interface HttpAccessDeps {
  /** The agent's data directory. */
  directory: string;
  /** Admits everybody who reaches the port. */
  open: boolean;
  /** Each of them has passed `reasonNotANetwork`. */
  from: readonly string[];
  log: Logger;
}

export const EVERYBODY: HttpAccess = { admits: () => true };

const MAX_TOKEN_BYTES = 4096;
const TOKEN = /^[\x21-\x7e]{20,}$/;

/**
 * Creates the token at the first start. @throws system errors, and Error for an unusable token file
 */
export async function openHttpAccess({ directory, open, from, log }: HttpAccessDeps): Promise<HttpAccess> {
  if (open) return EVERYBODY;
  const path = join(directory, 'http-token');
  await makeOnce(path);
  const complain = (reason: string) => log.warn({ reason }, 'http port: no new token');
  const token = new ReloadedFile({
    path,
    maxBytes: MAX_TOKEN_BYTES,
    protection: 'secret',
    parse: parseToken,
    complain,
  });
  token.load();
  const networks = new Networks(from);
  return {
    admits({ headers, socket }) {
      const address = normalizeAddress(socket.remoteAddress ?? '');
      return networks.contain(address) || isBearer(headers.authorization, token.read());
    },
  };
}

async function makeOnce(path: string): Promise<void> {
  try {
    await writeFile(path, `${randomBytes(32).toString('base64url')}\n`, { flag: 'wx', mode: 0o600 });
    // The umask may have removed a permission of the owner.
    await chmod(path, 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function parseToken(text: string): string {
  const token = text.trim();
  if (!TOKEN.test(token)) throw new Error('it does not hold one token of 20 characters or more');
  return token;
}

function isBearer(header: string | undefined, token: string | undefined): boolean {
  const given = /^bearer +(\S{1,4096})$/i.exec(header?.trim() ?? '')?.[1];
  return given !== undefined && token !== undefined && timingSafeEqual(digest(given), digest(token));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
