/**
 * Decides who may use the agent's HTTP port: callers with the token in DATA/http-token, callers
 * from the configured networks (legacy CNAPIs send no token), or everybody if configured so.
 * Created by main.ts, asked by http-port.ts.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import { join } from 'node:path';
import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { ReloadedFile } from '../reloaded-file.ts';

export interface HttpAccess {
  admits(request: Pick<IncomingMessage, 'headers' | 'socket'>): boolean;
}

interface HttpAccessDeps {
  /** The agent's data directory. */
  directory: string;
  /** Admits everybody who reaches the port. */
  open: boolean;
  /** Addresses, or networks such as 10.0.0.0/24. */
  from: readonly string[];
  log: Logger;
}

export const EVERYBODY: HttpAccess = { admits: () => true };

const MAX_TOKEN_BYTES = 4096;
const TOKEN = /^[\x21-\x7e]{20,}$/;
const NETWORK = /^([^/]+)(?:\/(\d{1,3}))?$/;

/**
 * Creates the token at the first start. @throws system errors, and Error for an unusable token file
 */
export async function openHttpAccess({ directory, open, from, log }: HttpAccessDeps): Promise<HttpAccess> {
  if (open) return EVERYBODY;
  const path = join(directory, 'http-token');
  await makeOnce(path);
  const complain = (reason: string) => log.warn({ reason }, 'http port: no new token');
  const token = new ReloadedFile({ path, maxBytes: MAX_TOKEN_BYTES, isSecret: true, parse: parseToken, complain });
  token.load();
  const networks = networksOf(from);
  return {
    admits({ headers, socket }) {
      const address = plain(socket.remoteAddress ?? '');
      const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
      return (isIP(address) !== 0 && networks.check(address, family)) || isBearer(headers.authorization, token.read());
    },
  };
}

/** Why `text` is neither an address nor a network; undefined if it is one. */
export function reasonNotANetwork(text: string): string | undefined {
  const [, address = '', prefix] = NETWORK.exec(text) ?? [];
  const bits = isIP(address) === 4 ? 32 : 128;
  if (isIP(address) === 0 || Number(prefix ?? 0) > bits)
    return 'is neither an IP address nor a network like 10.0.0.0/24';
  return undefined;
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

function networksOf(from: readonly string[]): BlockList {
  const list = new BlockList();
  for (const text of from) {
    const [, address = '', prefix] = NETWORK.exec(text) ?? [];
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    try {
      list.addSubnet(address, Number(prefix ?? (family === 'ipv6' ? 128 : 32)), family);
    } catch (cause) {
      throw new Error(`--http-from ${text}: ${messageOf(cause)}`, { cause });
    }
  }
  return list;
}

/** Strips the prefix of an IPv4 peer when the socket listens on IPv6 as well. */
function plain(address: string): string {
  return address.toLowerCase().startsWith('::ffff:') && address.includes('.')
    ? address.slice('::ffff:'.length)
    : address;
}

function isBearer(header: string | undefined, token: string | undefined): boolean {
  const given = /^bearer +(\S{1,4096})$/i.exec(header?.trim() ?? '')?.[1];
  return given !== undefined && token !== undefined && timingSafeEqual(digest(given), digest(token));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
