/** The files that `--package-key` names. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { readPackageKeys } from '../../../lib/agent/packages/package-keys.ts';

t.test('only files with one public Ed25519 key are taken, and an error names the file', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'package-keys-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey;
  const files: Record<string, string> = {
    right: publicKey.export({ type: 'spki', format: 'pem' }).toString(),
    private: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    rsa: rsa.export({ type: 'spki', format: 'pem' }).toString(),
    empty: '',
    text: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA user@host\n',
  };
  const pathOf = (name: string) => join(folder, name);
  for (const [name, text] of Object.entries(files)) await writeFile(pathOf(name), text);
  const reasons: Record<string, RegExp> = {
    private: /: it holds a private key; give the public one$/,
    rsa: /: it is a key for rsa, not Ed25519$/,
    empty: /cannot be used: ./,
    text: /cannot be used: ./,
    absent: /cannot be used: ENOENT/,
  };
  const read = readPackageKeys([pathOf('right'), pathOf('right')]);
  t.same(
    read.map((key) => key.equals(publicKey)),
    [true, true],
  );
  for (const [name, message] of Object.entries(reasons)) {
    const error = t.throws(() => readPackageKeys([pathOf('right'), pathOf(name)]), { message }, name);
    t.match(error, { message: new RegExp(`^--package-key ${pathOf(name)} cannot be used`) }, `${name}: the file`);
  }
});
