/**
 * The certificate and key of an instance that speaks TLS: read from their files, checked, and read
 * again without a restart when the files change or a reload is requested. Owned by
 * `lib/control/app.ts`, used by the listener. At start an unusable pair is an error; later it is
 * logged, and the previous pair stays in use.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { CnapiError, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { Loop } from '../../../platform/time/loop.ts';

interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface CertificatePair {
  /** PEM, as read. */
  cert: string;
  key: string;
  serial: string;
  subjectAltName: string;
  validFromMs: number;
  validUntilMs: number;
}

/** An unusable certificate or key; the message names the configuration key and its file. */
class CertificateError extends CnapiError {
  constructor(message: string, cause?: unknown) {
    super('InvalidCertificate', 500, message, { cause });
  }
}

/** A chain has a few kilobytes. */
const MAX_FILE_BYTES = 1024 * 1024;
const LOOK_EVERY_MS = 1000;
const WARN_BEFORE_MS = 14 * 86_400_000;
const WARN_EVERY_MS = 86_400_000;

/** @throws CertificateError */
export async function readPair({ certFile, keyFile }: CertificateFiles, wallTime: number): Promise<CertificatePair> {
  const [cert, key] = [await textOf('tlsCertFile', certFile), await textOf('tlsKeyFile', keyFile)];
  const certificate = parsed('tlsCertFile', certFile, 'a certificate in PEM', () => new X509Certificate(cert));
  const privateKey = parsed('tlsKeyFile', keyFile, 'a private key in PEM, without a passphrase', () =>
    createPrivateKey(key),
  );
  const pair = { cert, key, ...aboutOf(certificate) };
  if (!isKeyOf(certificate, privateKey))
    throw new CertificateError(`tlsKeyFile ${keyFile} is not the key of the certificate in tlsCertFile ${certFile}`);
  if (wallTime > pair.validUntilMs)
    throw new CertificateError(`tlsCertFile ${certFile} has expired: it was valid until ${certificate.validTo}`);
  if (wallTime < pair.validFromMs)
    throw new CertificateError(
      `tlsCertFile ${certFile} is not valid before ${certificate.validFrom}; is this machine's clock right?`,
    );
  return pair;
}

export class Certificates {
  readonly #deps: { files: CertificateFiles; clock: Clock; log: Logger };
  #current: CertificatePair | undefined;
  #use: (pair: CertificatePair) => void = () => undefined;
  readonly #loop: Loop;
  /** The files' state when they were last read, and when they were last checked. */
  #readAs = '';
  #seenAs = '';
  #warnAgainAt = 0;

  constructor(deps: { files: CertificateFiles; clock: Clock; log: Logger }) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'tls: look at the certificate and its key',
      work: () => this.#poll(),
      pauseMs: LOOK_EVERY_MS,
      first: 'pause',
    });
  }

  /** Undefined until `load()`. */
  get current(): CertificatePair | undefined {
    return this.#current;
  }

  /** Negative if it has expired. */
  get expiresInSeconds(): number {
    return Math.floor(((this.#current?.validUntilMs ?? 0) - this.#deps.clock.wallTime()) / 1000);
  }

  /** @throws CertificateError */
  async load(): Promise<void> {
    const { files, clock } = this.#deps;
    this.#readAs = this.#seenAs = await looksOf(files);
    this.#current = await readPair(files, clock.wallTime());
    this.#warnOfItsEnd();
  }

  /** Passes the pair to `use`, now and at each renewal. */
  start(use: (pair: CertificatePair) => void): void {
    this.#use = use;
    if (this.#current) use(this.#current);
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Reads the files, changed or not. */
  async reload(): Promise<void> {
    this.#readAs = this.#seenAs = await looksOf(this.#deps.files);
    await this.#renew();
  }

  /**
   * Two files cannot be replaced at the same moment, so they are read once two checks have found
   * the same state.
   */
  async #poll(): Promise<void> {
    this.#warnOfItsEnd();
    const looks = await looksOf(this.#deps.files);
    const isSettled = looks === this.#seenAs;
    this.#seenAs = looks;
    if (!isSettled || looks === this.#readAs) return;
    this.#readAs = looks;
    await this.#renew();
  }

  async #renew(): Promise<void> {
    const { files, clock, log } = this.#deps;
    try {
      const pair = await readPair(files, clock.wallTime());
      this.#use(pair);
      this.#current = pair;
      const { serial, subjectAltName, validUntilMs } = pair;
      const validUntil = new Date(validUntilMs).toISOString();
      log.info({ serial, names: subjectAltName, valid_until: validUntil }, 'tls: new connections get this certificate');
      this.#warnAgainAt = 0;
      this.#warnOfItsEnd();
    } catch (error) {
      log.error({ reason: messageOf(error) }, 'tls: the new certificate cannot be used; the previous one stays in use');
    }
  }

  #warnOfItsEnd(): void {
    const { clock, log, files } = this.#deps;
    const pair = this.#current;
    if (!pair || clock.now() < this.#warnAgainAt || pair.validUntilMs - clock.wallTime() > WARN_BEFORE_MS) return;
    this.#warnAgainAt = clock.now() + WARN_EVERY_MS;
    const fields = { file: files.certFile, valid_until: new Date(pair.validUntilMs).toISOString() };
    if (this.expiresInSeconds < 0) log.error(fields, 'tls: the certificate has expired; put a new one in its place');
    else log.warn(fields, 'tls: the certificate expires soon; put a new one in its place, no restart is needed');
  }
}

/** Changes whenever one of the files is written, replaced or linked to another file. */
async function looksOf({ certFile, keyFile }: CertificateFiles): Promise<string> {
  const each = await Promise.all([certFile, keyFile].map((file) => stat(file).catch(() => undefined)));
  return each.map((one) => (one ? `${one.ino} ${one.size} ${one.mtimeMs} ${one.ctimeMs}` : '-')).join(', ');
}

async function textOf(key: string, file: string): Promise<string> {
  try {
    const { size } = await stat(file);
    if (size > MAX_FILE_BYTES) throw new Error(`it is larger than ${MAX_FILE_BYTES} bytes`);
    return await readFile(file, 'utf8');
  } catch (cause) {
    throw new CertificateError(`${key} ${file} cannot be read: ${messageOf(cause)}`, cause);
  }
}

function parsed<Value>(key: string, file: string, what: string, parse: () => Value): Value {
  try {
    return parse();
  } catch (cause) {
    throw new CertificateError(`${key} ${file} does not hold ${what}`, cause);
  }
}

function isKeyOf(certificate: X509Certificate, key: KeyObject): boolean {
  try {
    return certificate.checkPrivateKey(key);
  } catch {
    return false;
  }
}

function aboutOf(certificate: X509Certificate) {
  return {
    serial: certificate.serialNumber,
    subjectAltName: certificate.subjectAltName ?? '',
    validFromMs: Date.parse(certificate.validFrom),
    validUntilMs: Date.parse(certificate.validTo),
  };
}
