/**
 * The list of subsystems and tables that the simulation and the interleavings share names those of
 * the product: a new subsystem or table fails here until somebody decides which tests use it.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import * as nouns from '../../lib/control/documents/nouns.ts';
import { serversBucket } from '../../lib/control/servers/server-bucket.ts';
import type { SubsystemDefinition } from '../../lib/control/subsystem.ts';
import { subsystems } from '../../lib/control/subsystem-list.ts';
import { WORLDS } from '../interleavings/worlds.ts';
import { simulatedSubsystems } from '../sim/sim-instance.ts';
import { subsystemCoverage, tablesFor } from './subsystem-coverage.ts';

const LIST = 'test/support/subsystem-coverage.ts';
const CREATED = /\bcreate table (cnapi_\w+)/g;
const control = path.resolve(import.meta.dirname, '../../lib/control');

type Definition = Pick<SubsystemDefinition<never>, 'migrations'>;
const coverage: Readonly<Record<string, { unsimulated?: string; tables?: object }>> = subsystemCoverage;
const simulated: readonly unknown[] = simulatedSubsystems;
const listed: readonly unknown[] = subsystems;

/** The definitions of all subsystems but the nouns of the bucket store, by their folders. */
async function readDefinitions(): Promise<Map<string, Definition>> {
  const found = new Map<string, Definition>();
  const files = readdirSync(control, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => path.basename(name) === 'subsystem.ts' && name.includes(path.sep))) {
    const exported: Record<string, Definition> = await import(path.join(control, file));
    const definition = Object.values(exported).find((value) => listed.includes(value));
    if (definition !== undefined) found.set(path.dirname(file), definition);
  }
  return found;
}

function tablesOf(folder: string, { migrations = [] }: Definition): string[] {
  const created = migrations.flatMap(({ sql }) => Array.from(sql.matchAll(CREATED), ([, table = '']) => table));
  return folder === 'servers' ? [...created, serversBucket.name] : created;
}

t.test('each subsystem is in the list with all of its tables', async (t) => {
  const definitions = await readDefinitions();
  const isNoun = (one: unknown) => Object.values<unknown>({ ...nouns }).includes(one);
  const known: unknown[] = [...definitions.values()];
  t.ok(
    listed.every((one) => known.includes(one) || isNoun(one)),
    'each subsystem is defined in its folder',
  );
  t.strictSame(Object.keys(coverage).sort(), [...definitions.keys()].sort(), `${LIST} names the subsystems`);
  for (const [folder, definition] of definitions) {
    const named = Object.keys(coverage[folder]?.tables ?? {}).sort();
    t.strictSame(named, tablesOf(folder, definition).sort(), `${LIST} names the tables of ${folder}`);
  }
});

t.test('the simulation runs the subsystems that the list does not leave out', async (t) => {
  for (const [folder, definition] of await readDefinitions())
    t.equal(coverage[folder]?.unsimulated === undefined, simulated.includes(definition), folder);
});

t.test('calls that meet at a table of the list are a pair in some world', async (t) => {
  const raced = new Set<string>(Object.values(WORLDS).flat());
  t.strictSame([...raced].sort(), tablesFor('raced').sort());
});
