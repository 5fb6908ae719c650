/** Checks who may read the files that hold secrets, and whether the certificate is valid. */

import { X509Certificate } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { messageOf } from '../../platform/errors.ts';
import type { Config } from '../config.ts';
import { type CertificatePair, readPair } from '../http/listener/certificates.ts';
import { type CheckInput, type Finding, findings } from './finding.ts';

const DAY_MS = 86_400_000;
const SOON_DAYS = 14;

/** The configuration holds the database's password; the key is the instance's identity. */
export async function checkModes(configFile: string | undefined, config: Config): Promise<Finding[]> {
  const part = findings('files');
  const files = [configFile, config.tlsKeyFile].filter((file) => file !== undefined);
  const each = files.map(async (file) => {
    const mode = await stat(file).then(
      (found) => found.mode & 0o777,
      () => undefined,
    );
    if (mode === undefined) return [];
    const text = `${file} has mode ${mode.toString(8)}`;
    if ((mode & 0o007) === 0) return [part.ok(text)];
    return [part.warn(`${text}: everybody on this machine may read it, and it holds secrets`, `chmod o-rwx ${file}`)];
  });
  return (await Promise.all(each)).flat();
}

export async function checkCertificate({ config, clock }: CheckInput): Promise<Finding[]> {
  const wallTime = clock.wallTime();
  const part = findings('certificate');
  const { tlsCertFile: certFile, tlsKeyFile: keyFile, host, advertiseHost = host } = config;
  if (certFile === undefined || keyFile === undefined) return [part.ok('none: the port speaks plain HTTP')];
  try {
    const pair = await readPair({ certFile, keyFile }, wallTime);
    return [aboutItsEnd(pair, wallTime), ...aboutItsNames(pair, [advertiseHost, serviceNameOf(config)])];
  } catch (error) {
    return [
      part.fail(messageOf(error), 'put a certificate and its key there that belong together and are valid today'),
    ];
  }
}

function aboutItsEnd({ validUntilMs }: CertificatePair, wallTime: number): Finding {
  const part = findings('certificate');
  const days = Math.floor((validUntilMs - wallTime) / DAY_MS);
  const text = `valid until ${new Date(validUntilMs).toISOString()}, ${days} days from now`;
  if (days >= SOON_DAYS) return part.ok(text);
  return part.warn(text, 'put a new one in its place; the instance takes it without a restart');
}

/**
 * A warning only, because a client may check the certificate by another name (agents: --tls-name).
 */
function aboutItsNames({ cert, subjectAltName }: CertificatePair, wanted: readonly string[]): Finding[] {
  const part = findings('certificate');
  const certificate = new X509Certificate(cert);
  const isFor = (name: string) => (isIP(name) ? certificate.checkIP(name) : certificate.checkHost(name)) !== undefined;
  const lacking = wanted.filter((name) => !isFor(name));
  if (lacking.length === 0) return [part.ok(`for ${wanted.join(' and ')}`)];
  const todo = 'have it made for these as well, or give clients and agents the name it is for (agents: --tls-name)';
  return [part.warn(`it is not for ${lacking.join(', nor for ')}, but for ${subjectAltName || 'no name'}`, todo)];
}

export const serviceNameOf = ({ datacenter, domain }: Pick<Config, 'datacenter' | 'domain'>): string =>
  `cnapi.${datacenter}.${domain}`;
