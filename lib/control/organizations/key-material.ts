/**
 * RSA keys of users and clients: checks public ones, and makes pairs. Pure, except `makeKeyPair`.
 */
import { createPublicKey, generateKeyPair, type KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import { InvalidArgumentError } from '../request-errors.ts';

const MIN_BITS = 2048;
/** Checking a signature with a longer key takes milliseconds. */
const MAX_BITS = 8192;
/** Checks with a large exponent are slow, too. */
const MAX_EXPONENT = 2n ** 32n;

/** A public key that verifies no signature: its private key was deleted. It is not a secret. */
export const UNUSED_KEY = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA8rrkxQO+lLvKuo+ZzDL/
lu4buPGlAQEoPMOQjCslvxneJrKGuHy2OEcQahlSShnFZo8oloAyWd+3SVRaxcjL
X8G7UYPSlmBW7xc9z6qmBLtgyY4KUTtC9c2/fm660+1FrBjADZ6whI4WPN3ZQ3OL
kCIBSlmIPFpSrhPlOcWsi97t+8HjalGnWILLx/90FL7ABu7Pb7FpCArEZVeXZpVh
+3GU9EuTS1chYt+Ha7hn0IWY2YsZY5kjos+uMtdfNMjPbhk3rwh8zno5e1h/Rj3a
c4uDoQ7pEg+MaSUEMcZTNbrrgKL2V8cHsde2daHvRfHGp2d3fheK4f6KSRlQh2yj
twIDAQAB
-----END PUBLIC KEY-----
`;

const generate = promisify(generateKeyPair);

/** @throws InvalidArgumentError saying what is wrong with it */
export function checkPublicKey(pem: string): void {
  if (/PRIVATE KEY/.test(pem)) throw refused('is a private key; keep that, and send the public one');
  const key = parsePublicKey(pem);
  if (key?.asymmetricKeyType !== 'rsa') throw refused('is not an RSA public key as PEM');
  const { modulusLength: bits = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {};
  if (bits < MIN_BITS || bits > MAX_BITS) throw refused(`has ${bits} bits, not ${MIN_BITS} to ${MAX_BITS}`);
  if (publicExponent >= MAX_EXPONENT) throw refused('has a public exponent of more than 32 bits; use 65537');
}

/** Undefined if it is not a key. */
export function parsePublicKey(pem: string): KeyObject | undefined {
  try {
    return createPublicKey(pem);
  } catch {
    return undefined;
  }
}

/** Runs in a thread of Node's pool, because it takes about 100 ms. */
export async function makeKeyPair(): Promise<{ publicKey: string; privateKey: string }> {
  return generate('rsa', {
    modulusLength: MIN_BITS,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    // The form that knife and chef-client use.
    privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
  });
}

const refused = (reason: string): InvalidArgumentError =>
  new InvalidArgumentError(`public_key ${reason}`, {
    errors: [{ field: 'public_key', code: 'Invalid', message: `value ${reason}` }],
  });
