/**
 * Compares the small worlds' roster rows with the statements themselves: the same operations give
 * the same rows and answers.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  declareLapsed,
  drainRun,
  endRun,
  incrementBeat,
  insertRun,
  readLive,
} from '../../lib/control/roster/membership/instance-store.ts';
import {
  acceptSession,
  markOwnerlessUnknown,
  pollRows,
  readRow,
  recordInventories,
  recordLosses,
  renewRun,
} from '../../lib/control/roster/status/roster-store.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { migrationsOf } from '../support/migrations-of.ts';
import { COMPUTING_TIMEOUT_MS } from '../support/patience.ts';
import { freshDatabase } from '../support/postgres.ts';
import { removeAuthority } from '../support/remove-authority.ts';
import { type Answers, checkConformance } from './conformance.ts';
import type { Dice } from './dice.ts';
import * as model from './roster/model.ts';

/** One server and a few runs: few enough that operations affect each other. */
class Fleet {
  readonly database: Database;
  readonly dice: Dice;
  readonly serverUuid = randomUUID();
  readonly names = Array.from({ length: 2 }, () => randomUUID());
  readonly runIds = Array.from({ length: 4 }, () => randomUUID());
  readonly incarnations = Array.from({ length: 2 }, () => randomUUID());
  readonly journals = Array.from({ length: 2 }, () => randomUUID());
  row: model.Row | undefined;
  runs: model.Run[] = [];

  constructor(database: Database, dice: Dice) {
    this.database = database;
    this.dice = dice;
  }

  get cnapiUuid(): string {
    return this.names[0] ?? '';
  }

  /** Near the row's value, below and above. */
  epoch(): number {
    return Math.max(0, (this.row?.epoch ?? 0) + this.dice.of([-2, -1, 0, 0, 0, 0, 1]));
  }

  held() {
    return { serverUuid: this.serverUuid, run: this.run(), epoch: this.epoch() };
  }

  run(): string {
    const { dice, row, runIds } = this;
    return row?.run && dice.chance(0.6) ? row.run : dice.of(runIds);
  }
}

const serverOf = (row: model.Row | undefined, fleet: Fleet): string[] => (row === undefined ? [] : [fleet.serverUuid]);

const operations: Record<string, (fleet: Fleet) => Promise<Answers>> = {
  async accept(fleet) {
    const { dice, serverUuid, cnapiUuid, database } = fleet;
    const lead = dice.chance(0.05) ? 2 ** 33 : 0;
    const claim = {
      incarnation: dice.of(fleet.incarnations),
      conn: 1 + Math.max(0, (fleet.row?.conn ?? 0) + dice.of([-1, 0, 0, 1, 2])),
      journalId: dice.of(fleet.journals),
      epoch: fleet.epoch() + lead,
    };
    const replaces = dice.of([null, null, fleet.row?.incarnation ?? null]);
    const run = dice.of(fleet.runIds);
    const accepted = model.accept(fleet.row, run, claim, replaces);
    fleet.row = accepted?.row ?? fleet.row;
    return {
      real: await acceptSession(database, { cnapiUuid, run }, { serverUuid, ...claim }, replaces),
      model: accepted && {
        epoch: accepted.row.epoch,
        previousRun: accepted.previousRun,
        isAlternating: accepted.isAlternating,
      },
    };
  },
  async inventory(fleet) {
    const held = fleet.held();
    const row = model.recordInventory(fleet.row, held);
    fleet.row = row ?? fleet.row;
    return { real: (await recordInventories(fleet.database, [held])).applied, model: serverOf(row, fleet) };
  },
  async loss(fleet) {
    const loss = { ...fleet.held(), reason: fleet.dice.of(['silent', 'closed'] as const) };
    const row = model.recordLoss(fleet.row, loss);
    fleet.row = row ?? fleet.row;
    return { real: (await recordLosses(fleet.database, fleet.cnapiUuid, [loss])).applied, model: serverOf(row, fleet) };
  },
  async ownerless(fleet) {
    const held = fleet.held();
    const run = fleet.run();
    const row = model.recordOwnerless(fleet.row, run, held);
    fleet.row = row ?? fleet.row;
    const real = await markOwnerlessUnknown(fleet.database, { cnapiUuid: fleet.cnapiUuid, run }, [held]);
    return { real, model: serverOf(row, fleet) };
  },
  async renew(fleet) {
    const held = fleet.held();
    const run = fleet.run();
    const row = model.renewRun(fleet.row, run, held);
    fleet.row = row ?? fleet.row;
    return { real: (await renewRun(fleet.database, run, [held])).applied, model: serverOf(row, fleet) };
  },
  async remove(fleet) {
    if (!fleet.dice.chance(0.2)) return { real: undefined, model: undefined };
    const before = fleet.row;
    fleet.row = model.remove(before);
    return {
      real: await removeAuthority(fleet.database, fleet.cnapiUuid, fleet.serverUuid),
      model: before && { previousRun: before.run, epoch: before.epoch },
    };
  },
  async poll(fleet) {
    const run = fleet.run();
    const { row } = fleet;
    const isRunning = row?.status === 'running';
    const shown = model.isPolled(row, run, fleet.runs)
      ? [{ serverUuid: fleet.serverUuid, run: row.run, epoch: row.epoch, isRunning }]
      : [];
    const real = await pollRows(fleet.database, run);
    return { real: real.filter(({ serverUuid }) => serverUuid === fleet.serverUuid), model: shown };
  },
  async insertRun(fleet) {
    const run = fleet.dice.of(fleet.runIds);
    const cnapiUuid = fleet.names[fleet.runIds.indexOf(run) % 2] ?? '';
    const identity = { cnapiUuid, url: '', host: 'h', port: 1, pid: 1, version: '0' };
    fleet.runs = model.insertRun(fleet.runs, { run, cnapiUuid });
    const isLive = fleet.runs.some((one) => one.run === run && one.isLive);
    return { real: (await insertRun(fleet.database, run, identity, null)) !== undefined, model: isLive };
  },
  async beat(fleet) {
    const run = fleet.run();
    const runs = model.incrementBeat(fleet.runs, run);
    fleet.runs = runs ?? fleet.runs;
    const isDraining = runs?.find((one) => one.run === run)?.isDraining;
    return { real: await incrementBeat(fleet.database, run, { agents: 0 }), model: runs && { isDraining } };
  },
  async declare(fleet) {
    const run = fleet.run();
    const known = fleet.runs.find((one) => one.run === run);
    const beat = Math.max(0, (known?.beat ?? 0) - fleet.dice.of([0, 0, 1]));
    fleet.runs = model.declareLapsed(fleet.runs, { run, beat });
    const applied = known?.isLive && known.beat === beat ? [run] : [];
    return { real: await declareLapsed(fleet.database, [{ run, beat }]), model: applied };
  },
  async end(fleet) {
    const run = fleet.run();
    fleet.runs = model.endRun(fleet.runs, run);
    return { real: await endRun(fleet.database, run), model: undefined };
  },
  async drain(fleet) {
    const run = fleet.run();
    const { runs, answer } = model.drainRun(fleet.runs, run);
    fleet.runs = runs;
    return { real: await drainRun(fleet.database, run), model: answer };
  },
};

t.setTimeout(COMPUTING_TIMEOUT_MS);

t.test("the model of the roster gives the same rows as the roster's statements", async (t) => {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  await checkConformance(t, {
    seed: 20_260_101,
    sequences: 80,
    steps: 50,
    begin: async (dice) => {
      await database.query('truncate cnapi_instances, cnapi_roster_authority');
      return new Fleet(database, dice);
    },
    operations,
    rows: async (fleet) => ({ real: await stored(fleet), model: expected(fleet) }),
  });
});

async function stored({ database, serverUuid }: Fleet) {
  const row = await readRow(database, serverUuid);
  const { rows } = await database.query<{ replaced: string | null }>(
    'select replaced from cnapi_roster_authority where server_uuid = $1::uuid',
    [serverUuid],
  );
  const live = await readLive(database);
  return {
    row: row && rowFields({ ...row, replaced: rows[0]?.replaced ?? null }),
    live: live.map(({ run, cnapiUuid, isDraining, beat }) => ({ run, cnapiUuid, isDraining, beat })).sort(byRun),
  };
}

function expected({ row, runs }: Fleet) {
  const live = runs.filter(({ isLive }) => isLive);
  return {
    row: row && rowFields(row),
    live: live.map(({ run, cnapiUuid, isDraining, beat }) => ({ run, cnapiUuid, isDraining, beat })).sort(byRun),
  };
}

function rowFields(row: model.Row): model.Row {
  const { run, epoch, status, reason, incarnation, conn, journalId, inventoryEpoch, replaced } = row;
  return { run, epoch, status, reason, incarnation, conn, journalId, inventoryEpoch, replaced };
}

const byRun = (one: { run: string }, other: { run: string }): number => (one.run < other.run ? -1 : 1);
