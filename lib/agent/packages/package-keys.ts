/** The public keys whose packages this agent installs. They are read when the agent starts. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { messageOf } from '../../platform/errors.ts';

/** @throws Error that names the option and the file */
export const readPackageKeys = (files: readonly string[]): KeyObject[] => files.map(readKey);

function readKey(file: string): KeyObject {
  try {
    const text = readFileSync(file, 'utf8');
    // Node would take the public half of it; but then the private key lies on this server.
    if (text.includes('PRIVATE KEY')) throw new Error('it holds a private key; give the public one');
    const key = createPublicKey(text);
    if (key.asymmetricKeyType !== 'ed25519') throw new Error(`it is a key for ${key.asymmetricKeyType}, not Ed25519`);
    return key;
  } catch (error) {
    throw new Error(`--package-key ${file} cannot be used: ${messageOf(error)}`, { cause: error });
  }
}
