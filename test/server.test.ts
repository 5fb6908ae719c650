/** The program itself: what cannot be started is said in a line. */
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import t from 'tap';
import { Authority } from './support/certificates.ts';
import { giveFormerSchema } from './support/former-schema.ts';
import { freshDatabase } from './support/postgres.ts';

const PROGRAM = new URL('../server.ts', import.meta.url).pathname;

function start(environment: Record<string, string>): Promise<{ code: number | null; stderr: string }> {
  const child = spawn(process.execPath, [PROGRAM], { env: environment, stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, stderr })));
}

t.test('a taken port is said in a line', async (t) => {
  const { url } = await freshDatabase(t);
  const squatter = createServer();
  await new Promise<void>((resolve) => squatter.listen(0, '127.0.0.1', resolve));
  t.teardown(() => squatter.close());
  const { port } = squatter.address() as { port: number };
  const { code, stderr } = await start({ CNAPI_DATABASE_URL: url, CNAPI_PORT: String(port) });
  t.equal(code, 1);
  t.match(stderr, new RegExp(`^cnapi: .*EADDRINUSE.*${port}\n$`));
});

t.test('a database that is not there is said in a line', async (t) => {
  const { url } = await freshDatabase(t);
  const { code, stderr } = await start({ CNAPI_DATABASE_URL: `${url}_not`, CNAPI_PORT: '0' });
  t.equal(code, 1);
  t.match(stderr, /^cnapi: database "\w+_not" does not exist\n$/);
});

t.test(
  'a database of a development version is refused in a line that says how to start with an empty one',
  async (t) => {
    const { url, database } = await freshDatabase(t);
    await giveFormerSchema(database);
    const { code, stderr } = await start({ CNAPI_DATABASE_URL: url, CNAPI_PORT: '0' });
    t.equal(code, 1);
    t.match(
      stderr,
      /^cnapi: the database has tables of a development version .*npm start -- --data FOLDER.*databaseUrl\n$/,
    );
  },
);

t.test('a public address without credentials is refused in a line that says how to set them', async (t) => {
  const { code, stderr } = await start({
    CNAPI_DATABASE_URL: 'postgres://127.0.0.1:1/none',
    CNAPI_HOST: '0.0.0.0',
    CNAPI_ADVERTISE_HOST: '10.0.0.1',
  });
  t.equal(code, 1);
  t.match(
    stderr,
    /^cnapi: Configuration: host 0\.0\.0\.0 .* access is open: set access to "tokens" .*cnapi token create.*\n$/,
  );
});

t.test('a certificate that has expired is said in a line, with its key and file', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue({ fromMs: Date.now() - 9e7, untilMs: Date.now() - 1000 });
  const files = { CNAPI_TLS_CERT_FILE: certFile, CNAPI_TLS_KEY_FILE: keyFile };
  const { code, stderr } = await start({ CNAPI_DATABASE_URL: 'postgres://127.0.0.1:1/none', ...files });
  t.equal(code, 1);
  t.match(stderr, /^cnapi: tlsCertFile \S+ has expired: it was valid until .*\n$/);
});
