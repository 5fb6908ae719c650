/** Who calls, and whom it trusts: the token and the certificate authority, from the environment or files. */
import { readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../errors.ts';
import { CredentialsError } from './client-errors.ts';

export interface Credentials {
  token: string | undefined;
  /** PEM. */
  ca: string | undefined;
}

const TOKEN = /^[\x21-\x7e]{1,500}$/;
const MAX_CA_BYTES = 1024 * 1024;
const MAX_TOKEN_FILE_BYTES = 4096;

/**
 * CNAPI_TOKEN, else the file CNAPI_TOKEN_FILE, else ~/.config/cnapi/token where there is one; CNAPI_CA_FILE.
 * @throws CredentialsError for a token file that others may read, and what cannot be read. Never with a token in its text.
 */
export async function credentialsOf(env: NodeJS.ProcessEnv): Promise<Credentials> {
  const [token, ca] = await Promise.all([tokenOf(env), caOf(env.CNAPI_CA_FILE)]);
  return { token, ca };
}

/** Where the token is looked for when nothing is said. */
export function defaultTokenFile(env: NodeJS.ProcessEnv): string {
  const config = env.XDG_CONFIG_HOME?.startsWith('/') ? env.XDG_CONFIG_HOME : join(env.HOME ?? homedir(), '.config');
  return join(config, 'cnapi', 'token');
}

async function tokenOf(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  if (env.CNAPI_TOKEN !== undefined && env.CNAPI_TOKEN !== '') return checked(env.CNAPI_TOKEN, 'CNAPI_TOKEN');
  const named = env.CNAPI_TOKEN_FILE;
  if (named !== undefined && named !== '') return readToken(named);
  const usual = defaultTokenFile(env);
  return (await stat(usual).catch(() => undefined)) === undefined ? undefined : readToken(usual);
}

async function readToken(file: string): Promise<string> {
  const found = await stat(file).catch((cause: unknown) => {
    throw new CredentialsError(`The token file ${file} cannot be read: ${messageOf(cause)}`, cause);
  });
  if (!found.isFile()) throw new CredentialsError(`The token file ${file} is not a file`);
  if ((found.mode & 0o077) !== 0) {
    const mode = (found.mode & 0o777).toString(8).padStart(4, '0');
    throw new CredentialsError(`The token file ${file} has mode ${mode}: others may use it; run chmod 600 ${file}`);
  }
  if (found.size > MAX_TOKEN_FILE_BYTES) throw new CredentialsError(`The token file ${file} holds more than a token`);
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new CredentialsError(`The token file ${file} cannot be read: ${messageOf(cause)}`, cause);
  });
  return checked(text.trim(), `The token file ${file}`);
}

function checked(token: string, source: string): string {
  if (TOKEN.test(token)) return token;
  throw new CredentialsError(`${source} does not hold a token: one line of visible ASCII characters`);
}

async function caOf(file: string | undefined): Promise<string | undefined> {
  if (file === undefined || file === '') return undefined;
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new CredentialsError(`The CA file ${file} cannot be read: ${messageOf(cause)}`, cause);
  });
  if (text.length > MAX_CA_BYTES || !text.includes('-----BEGIN CERTIFICATE-----'))
    throw new CredentialsError(`The CA file ${file} does not hold certificates in PEM`);
  return text;
}
