import { randomUUID } from 'node:crypto';
import t from 'tap';
import { createMemoryBus, MemoryHub } from '../lib/bus/memory-bus.ts';
import { parseConfig } from '../lib/config.ts';
import { Core } from '../lib/core.ts';
import { DatabaseUnavailableError } from '../lib/errors.ts';
import { silentLogger as log } from '../lib/log.ts';
import type { Database } from '../lib/moray/database.ts';
import { systemClock as clock } from '../lib/ports/clock.ts';
import { systemRandom as random } from '../lib/ports/random.ts';
import { freshDatabase } from './support/postgres.ts';

/** A door on nothing. */
const noDoor = {
  url: 'http://127.0.0.1:1',
  unanswered: 0,
  start: async () => {},
  announceLeave: () => {},
  closeDoor: () => {},
  stop: async () => {},
};

t.test('an instance whose database goes away while it is prepared waits for it, and starts', async (t) => {
  const { database, url } = await freshDatabase(t);
  const cnapiUuid = randomUUID();
  let prepared = 0;
  const flaky: Database = {
    query: (...statement) => database.query(...statement),
    stream: (...statement) => database.stream(...statement),
    transaction: (...work) => {
      prepared += 1;
      if (prepared === 3) return Promise.reject(new DatabaseUnavailableError(new Error('gone')));
      return database.transaction(...work);
    },
    stop: async () => {},
  };
  const core = new Core({
    config: { ...parseConfig({ databaseUrl: url, cnapiUuid }), cnapiUuid },
    databases: { main: flaky, beats: flaky, verdicts: flaky, sightings: flaky },
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random, log }),
    door: () => noDoor,
    clock,
    random,
    log,
  });
  await core.start();
  t.ok(prepared > 3, 'it went on after the failure');
  t.strictSame(core.roster.readiness(), { ready: true, reasons: [] });
  await core.stop();
});
