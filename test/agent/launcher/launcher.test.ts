import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Launcher } from '../../../lib/agent/launcher/launcher.ts';
import { VersionsFile } from '../../../lib/agent/versions/versions-file.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { HANG_MS } from '../../support/patience.ts';

const VERSIONS = fileURLToPath(new URL('../../../lib/agent/versions/versions-file.ts', import.meta.url));
const next = { version: '9.1.0', digest: 'd'.repeat(64) };

t.test('an agent that has staged a version and does not stop is killed, and the version is started', async (t) => {
  t.setTimeout(HANG_MS);
  const data = t.testdir();
  const versions = await VersionsFile.open(data, '1.0.0');
  const program = join(data, 'agent.ts');
  const stage = `{ type: 'stage', next: ${JSON.stringify(next)}, task: 'one' }`;
  await writeFile(
    program,
    `import { VersionsFile } from ${JSON.stringify(VERSIONS)};
     process.on('SIGTERM', () => {});
     const versions = await VersionsFile.open(${JSON.stringify(data)}, '1.0.0');
     if (versions.versions.ends.length > 0) process.exit(7);
     await versions.step(${stage});
     process.send('staged');
     setInterval(() => {}, 1000);`,
  );
  await mkdir(join(versions.programOf(next), '..'), { recursive: true });
  await writeFile(versions.programOf(next), 'process.exit(8);');
  const waits: number[] = [];
  // The time that an agent has to stop passes immediately.
  const clock = {
    ...systemClock,
    after(ms: number, callback: () => void) {
      waits.push(ms);
      return systemClock.after(ms === 30_000 ? 0 : ms, callback);
    },
  };
  const base = { version: '1.0.0', program };
  const launcher = new Launcher({ clock, log: silentLogger, versions, data, base, args: [], trialMs: 60_000 });
  t.teardown(() => launcher.stop('SIGKILL'));
  t.same(await launcher.run(), { code: 7, signal: null }, 'the version before runs again after the trial');
  t.ok(waits.includes(30_000));
  t.match(versions.versions.ends, { 0: { version: '9.1.0', outcome: 'rolled-back', reason: /exited with code 8/ } });
});
