/**
 * Certificates of a certificate authority that `openssl` creates for the test. Each is valid for a
 * week unless a test gives another time.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Teardown } from './postgres.ts';

const run = promisify(execFile);
const DAY_MS = 86_400_000;
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

export interface Issued {
  certFile: string;
  keyFile: string;
  serial: string;
}

export interface CertificateRequest {
  /** The names in OpenSSL's form: `IP:127.0.0.1,DNS:cnapi.example`. */
  names?: string;
  fromMs?: number;
  untilMs?: number;
}

export class Authority {
  readonly folder: string;
  readonly caFile: string;
  #issued = 0;

  private constructor(folder: string) {
    this.folder = folder;
    this.caFile = join(folder, 'ca.pem');
  }

  static async create(t: Teardown): Promise<Authority> {
    const folder = await mkdtemp(join(tmpdir(), 'cnapi-ca-'));
    t.teardown(() => rm(folder, { recursive: true, force: true }));
    const authority = new Authority(folder);
    const { caFile } = authority;
    const keyFile = join(folder, 'ca-key.pem');
    const about = ['-days', '8', '-subj', '/CN=CA of a test', '-addext', 'keyUsage=keyCertSign'];
    await run('openssl', ['req', '-x509', ...KEY, ...about, '-keyout', keyFile, '-out', caFile]);
    await writeFile(join(folder, 'index.txt'), '');
    await writeFile(join(folder, 'ca.conf'), caConfig(folder));
    return authority;
  }

  /** Creates a key and a certificate for it, in their own files. */
  async issue({
    names = 'IP:127.0.0.1',
    fromMs = Date.now() - DAY_MS,
    untilMs = Date.now() + 7 * DAY_MS,
  } = {}): Promise<Issued> {
    this.#issued += 1;
    const base = join(this.folder, String(this.#issued));
    const [certFile, keyFile, request] = [`${base}.pem`, `${base}-key.pem`, `${base}.csr`];
    const subject = ['-subj', `/CN=cnapi ${this.#issued}`, '-addext', `subjectAltName=${names}`];
    await run('openssl', ['req', '-new', ...KEY, ...subject, '-keyout', keyFile, '-out', request]);
    const dates = ['-startdate', asn1(fromMs), '-enddate', asn1(untilMs)];
    const conf = join(this.folder, 'ca.conf');
    await run('openssl', ['ca', '-batch', '-notext', '-config', conf, ...dates, '-in', request, '-out', certFile]);
    const { stdout } = await run('openssl', ['x509', '-in', certFile, '-noout', '-serial']);
    return { certFile, keyFile, serial: stdout.trim().replace('serial=', '') };
  }
}

/** One request to an instance over TLS. */
export async function askOverTls(caFile: string, url: string, asked: { method?: string; body?: unknown } = {}) {
  const { method = 'GET', body } = asked;
  const headers = { 'content-type': 'application/json' };
  const question = request(url, { ca: await readFile(caFile), agent: false, method, headers });
  question.end(body === undefined ? undefined : JSON.stringify(body));
  const [response] = await once(question, 'response');
  const text = (await response.toArray()).join('');
  return {
    status: response.statusCode as number,
    text,
    body: text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : undefined,
  };
}

/** Replaces these files by others, each in one step. */
export async function replaceFiles(at: { certFile: string; keyFile: string }, by: Partial<Issued>): Promise<void> {
  for (const key of ['keyFile', 'certFile'] as const) {
    const from = by[key];
    if (from === undefined) continue;
    await writeFile(`${at[key]}.new`, await readFile(from), { mode: 0o600 });
    await rename(`${at[key]}.new`, at[key]);
  }
}

const asn1 = (ms: number): string => `${new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, '')}`;

const caConfig = (folder: string): string => `
[ca]
default_ca = this
[this]
database = ${folder}/index.txt
new_certs_dir = ${folder}
certificate = ${folder}/ca.pem
private_key = ${folder}/ca-key.pem
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
`;
