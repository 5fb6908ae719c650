import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { faultTest } from '../support/fault-test.ts';
import { PlainCaller } from '../support/plain-caller.ts';

const config = { drainAgentsMs: 8_000, drainWaitsMs: 12_000 };

faultTest(
  'an instance drained under load sends its waits to others, where its work continues',
  { simulated: 100, config },
  async ({ t, zone }) => {
    const [first, second] = zone.instances as [(typeof zone.instances)[0], (typeof zone.instances)[0]];
    const serverUuid = zone.agents[0]?.serverUuid ?? '';
    const caller = new PlainCaller(zone);
    caller.start(serverUuid);
    const go = path.join(zone.directory, 'go');
    const created = await fetch(`${second.url}/servers/${serverUuid}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        task: 'command_execute',
        params: { script: `#!/bin/sh\nwhile [ ! -e ${go} ]; do sleep 0.5; done\n` },
      }),
    });
    const { id } = (await created.json()) as { id: string };
    const waits = Array.from({ length: 50 }, () => fetch(`${first.url}/tasks/${id}/wait`));
    const uuid = randomUUID();
    t.equal((await fetch(`${second.url}/instances/${uuid}/drain`, { method: 'POST' })).status, 404);
    const answers = await Promise.all([
      fetch(`${second.url}/instances/${first.uuid}/drain`, { method: 'POST' }),
      ...waits,
    ]);
    t.same([...new Set(answers.map(({ status }) => status))], [202, 503]);
    const bodies = (await Promise.all(answers.slice(1).map((answer) => answer.json()))) as { code: string }[];
    t.same([...new Set(bodies.map(({ code }) => code))], ['InstanceDraining'], 'each wait is told to ask again');
    await first.program.ended();
    t.equal(first.program.exitCode, 0);
    const stored = (await (await fetch(`${second.url}/tasks/${id}`)).json()) as { status: string };
    t.equal(stored.status, 'active', 'its task is not ended');
    writeFileSync(go, '');
    const ended = (await (await fetch(`${second.url}/tasks/${id}/wait`)).json()) as { status: string };
    t.equal(ended.status, 'complete', 'its task continues');
    t.same(await caller.finish(), []);
    const [held] = await zone.sql<{ count: number }>(
      'select count(*)::int as count from cnapi_roster_authority where cnapi_uuid = $1',
      [first.uuid],
    );
    t.equal(held?.count, 0, 'no server is left with it');
  },
);

faultTest(
  'an instance drained while the others are frozen keeps its agents until one is back',
  { instances: 2, simulated: 20 },
  async ({ t, zone }) => {
    const [first, second] = zone.instances as [(typeof zone.instances)[0], (typeof zone.instances)[0]];
    second.program.freeze();
    const left = first.program.kill('SIGTERM');
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    t.ok(first.program.isAlive, 'it waits for the others');
    second.program.thaw();
    await left;
    t.equal(first.program.exitCode, 0);
  },
);
