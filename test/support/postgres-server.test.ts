import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startTestPostgres } from './postgres-server.ts';

const program = (line: string) => `
  import { startTestPostgres } from '${new URL('./postgres-server.ts', import.meta.url).href}';
  const server = await startTestPostgres();
  ${line}
  console.log(JSON.stringify({ pid: server.pid, dataDir: server.dataDir }));
  setInterval(() => undefined, 1000);`;

for (const [name, line] of Object.entries({ running: '', frozen: 'server.freeze();' })) {
  t.test(`after a ${name} server's process has ended in any way, the server and its data are gone`, async (t) => {
    const owner = spawn(process.execPath, ['--input-type=module', '-e', program(line)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [said] = await once(createInterface(owner.stdout), 'line');
    const { pid, dataDir } = JSON.parse(said) as { pid: number; dataDir: string };
    t.ok(isAlive(pid));
    owner.kill('SIGKILL');
    for (const deadline = Date.now() + 60_000; isAlive(pid) || existsSync(dataDir); await sleep(50)) {
      if (Date.now() > deadline) throw new Error('the server still runs');
    }
    t.notOk(existsSync(dataDir));
  });
}

t.test('a server that crashed and was restarted is reported by its new process', async (t) => {
  await using server = await startTestPostgres({ fast: false });
  for (let times = 0; times < 5; times++) {
    await server.crash();
    await server.start();
    t.ok(isAlive(server.pid));
  }
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
