/**
 * `npm run agent-package`: makes and signs packages of agents, and keys for that.
 * docs/agent-packages.md.
 */
import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { OWN_PACKAGE } from '../../lib/agent/packages/manifest.ts';
import { messageOf } from '../../lib/platform/errors.ts';
import { VERSION } from '../../lib/platform/version.ts';
import { agentFiles } from './agent-files.ts';
import { buildPackage, type FileToPackage } from './build-package.ts';

/** The version in package.json, `engines`. */

const OLDEST_NODE = '22.18.0';
const root = path.resolve(import.meta.dirname, '../..');
const text = { type: 'string' } as const;

try {
  const { values } = parseArgs({
    options: { 'new-key': text, key: text, out: text, version: text, from: text, name: text },
  });
  if (values['new-key'] !== undefined) makeKey(values['new-key']);
  else makePackage(values);
} catch (error) {
  process.stderr.write(`agent-package: ${messageOf(error)}\n`);
  process.exitCode = 1;
}

/** The file of the private key must not exist, so that none is lost. */
function makeKey(file: string): void {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  writeFileSync(file, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600, flag: 'wx' });
  writeFileSync(`${file}.pub`, publicKey.export({ type: 'spki', format: 'pem' }), { mode: 0o644, flag: 'wx' });
  process.stdout.write(`${file}.pub\n`);
}

interface Request {
  key?: string | undefined;
  out?: string | undefined;
  version?: string | undefined;
  from?: string | undefined;
  name?: string | undefined;
}

function makePackage({ key, out = '.', version = VERSION, from, name = OWN_PACKAGE }: Request): void {
  if (key === undefined) throw new Error('--key FILE is missing: the private key that signs (--new-key makes one)');
  if ((from === undefined) !== (name === OWN_PACKAGE))
    throw new Error(`--from DIR and --name NAME go together; the package of this agent is ${OWN_PACKAGE}`);
  const privateKey = createPrivateKey(readFileSync(key));
  const own = from === undefined;
  const files = own ? agentFiles(root, version) : filesOf(from, '');
  const built = buildPackage({ name, version, files, privateKey, ...(own ? { node: OLDEST_NODE } : {}) });
  mkdirSync(out, { recursive: true });
  const file = path.join(out, `${name}-${version}.tar`);
  writeFileSync(file, built);
  process.stdout.write(`${file}\n`);
}

function filesOf(directory: string, below: string): FileToPackage[] {
  return readdirSync(path.join(directory, below), { withFileTypes: true }).flatMap((found): FileToPackage[] => {
    const name = path.posix.join(below, found.name);
    const file = path.join(directory, name);
    if (found.isDirectory()) return filesOf(directory, name);
    if (!found.isFile()) throw new Error(`${file} is neither a file nor a directory, so it cannot be packaged`);
    return [{ path: name, contents: readFileSync(file), executable: (statSync(file).mode & 0o111) !== 0 }];
  });
}
