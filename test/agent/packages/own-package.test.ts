import { mkdir } from 'node:fs/promises';
import t from 'tap';
import { OwnPackage } from '../../../lib/agent/packages/own-package.ts';
import { verifyPackage } from '../../../lib/agent/packages/package-archive.ts';
import { VersionsFile } from '../../../lib/agent/versions/versions-file.ts';
import { brokenAgent, packageShop } from '../../support/agent-packages.ts';

t.test('when the file of a package cannot be removed, the next installation succeeds', async (t) => {
  const shop = await packageShop(t);
  await mkdir(shop.data, { recursive: true });
  const versions = await VersionsFile.open(shop.data, '1.0.0');
  const restart = Promise.withResolvers<void>();
  const deps = { versions, trial: undefined, isLaunched: true, requestRestart: restart.resolve };
  const own = new OwnPackage(deps);
  const end = new AbortController();
  const { signal } = end;
  const file = await shop.add({ version: '9.1.0', files: brokenAgent('') });
  const found = await verifyPackage(file, { keys: [shop.publicKey], signal });
  const request = { file, allowDowngrade: false, allowRetry: false, signal };
  const onUnpacked = () => Promise.reject(new Error('EIO'));
  await t.rejects(own.install(found, { ...request, taskId: 'one', onUnpacked }), /EIO/);
  t.equal(versions.versions.change.name, 'settled');
  const second = own.install(found, { ...request, taskId: 'two', onUnpacked: async () => undefined });
  second.catch(() => undefined);
  await restart.promise;
  t.match(versions.versions.change, { name: 'staged', task: 'two' });
  end.abort(new Error('over'));
  await t.rejects(second, /over/);
});
