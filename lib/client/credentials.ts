/**
 * The caller's credentials: its token and the certificate authority it trusts, from the environment
 * or from files.
 */
import { readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../platform/errors.ts';
import type { Address } from './address.ts';
import { CredentialsError } from './client-errors.ts';
import { localTokenFile } from './local-cnapi.ts';

export interface Credentials {
  token: string | undefined;
  /** Certificates of the certificate authority, in PEM format. */
  ca: string | undefined;
  /**
   * The configuration folder, in which each `npm start` announces itself. At the addresses of an
   * `npm start`, its token is used instead of `token`. Absent when the caller named a token.
   */
  localFolder?: string;
}

const TOKEN = /^[\x21-\x7e]{1,500}$/;
const MAX_CA_BYTES = 1024 * 1024;
const MAX_TOKEN_FILE_BYTES = 4096;

/**
 * The token is CNAPI_TOKEN; otherwise the file CNAPI_TOKEN_FILE; otherwise that of an `npm start`,
 * for its own addresses; otherwise ~/.config/cnapi/token if it exists. The CA is CNAPI_CA_FILE.
 * @throws CredentialsError for a token file that other users may read, and for files that cannot be
 * read. Its text never contains a token.
 */
export async function readCredentials(env: NodeJS.ProcessEnv): Promise<Credentials> {
  const [token, ca] = await Promise.all([tokenOf(env), caOf(env.CNAPI_CA_FILE)]);
  const isNamed = isGiven(env.CNAPI_TOKEN) || isGiven(env.CNAPI_TOKEN_FILE);
  return { token, ca, ...(isNamed ? {} : { localFolder: configFolder(env) }) };
}

/** Returns the token to send to one address. @throws CredentialsError */
export async function tokenFor(
  { token, localFolder }: Credentials,
  address: Pick<Address, 'secure' | 'host' | 'port'>,
): Promise<string | undefined> {
  const file = localFolder === undefined ? undefined : localTokenFile(localFolder, address);
  return file === undefined ? token : readToken(file);
}

/** The folder for files of this user's callers. */
export function configFolder(env: NodeJS.ProcessEnv): string {
  const config = env.XDG_CONFIG_HOME?.startsWith('/') ? env.XDG_CONFIG_HOME : join(env.HOME ?? homedir(), '.config');
  return join(config, 'cnapi');
}

async function tokenOf(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  if (isGiven(env.CNAPI_TOKEN)) return checked(env.CNAPI_TOKEN, 'CNAPI_TOKEN');
  if (isGiven(env.CNAPI_TOKEN_FILE)) return readToken(env.CNAPI_TOKEN_FILE);
  const usual = join(configFolder(env), 'token');
  return (await stat(usual).catch(() => undefined)) === undefined ? undefined : readToken(usual);
}

function isGiven(value: string | undefined): value is string {
  return value !== undefined && value !== '';
}

async function readToken(file: string): Promise<string> {
  const found = await stat(file).catch(unreadable('token', file));
  if (!found.isFile()) throw new CredentialsError(`The token file ${file} is not a file`);
  if ((found.mode & 0o077) !== 0) {
    const mode = (found.mode & 0o777).toString(8).padStart(4, '0');
    throw new CredentialsError(`The token file ${file} has mode ${mode}: others may use it; run chmod 600 ${file}`);
  }
  if (found.size > MAX_TOKEN_FILE_BYTES) throw new CredentialsError(`The token file ${file} holds more than a token`);
  const text = await readFile(file, 'utf8').catch(unreadable('token', file));
  return checked(text.trim(), `The token file ${file}`);
}

const unreadable = (what: string, file: string) => (cause: unknown) => {
  throw new CredentialsError(`The ${what} file ${file} cannot be read: ${messageOf(cause)}`, cause);
};

function checked(token: string, source: string): string {
  if (TOKEN.test(token)) return token;
  throw new CredentialsError(`${source} does not hold a token: one line of visible ASCII characters`);
}

async function caOf(file: string | undefined): Promise<string | undefined> {
  if (file === undefined || file === '') return undefined;
  const text = await readFile(file, 'utf8').catch(unreadable('CA', file));
  if (text.length > MAX_CA_BYTES || !text.includes('-----BEGIN CERTIFICATE-----'))
    throw new CredentialsError(`The CA file ${file} does not hold certificates in PEM`);
  return text;
}
