/**
 * Debian's `pgbench` as the floor for the work of the database: the product's own statements,
 * written to a script and run by a client that does nothing else. If the program is missing, the
 * figure says how to install it.
 */
import { execFile } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Queryable, QueryResult } from '../../lib/platform/postgres/database.ts';
import { isExecutable } from '../processes/executable.ts';

export interface Statement {
  text: string;
  values: readonly unknown[];
}

export interface PgbenchPlan {
  url: string;
  /** Each transaction runs the script once. */
  script: string;
  clients: number;
  seconds: number;
  /** The folder for the script's file. */
  directory: string;
}

export class PgbenchError extends Error {}

export class NoPgbenchError extends PgbenchError {
  constructor() {
    super('there is no pgbench to compare with: on Debian, apt-get install postgresql');
  }
}

const DEBIAN = '/usr/lib/postgresql';

/** Returns Debian's newest pgbench, or the one on the PATH. @throws NoPgbenchError */
export function findPgbench(): string {
  const versions = readVersions().sort((a, b) => Number(b) - Number(a));
  const folders = [...versions.map((version) => path.join(DEBIAN, version, 'bin')), ...searchPath()];
  const found = folders.map((folder) => path.join(folder, 'pgbench')).find(isExecutable);
  if (found === undefined) throw new NoPgbenchError();
  return found;
}

/** Returns scripts per second, without the time to connect. @throws PgbenchError */
export async function runPgbench({ url, script, clients, seconds, directory }: PgbenchPlan): Promise<number> {
  const file = path.join(directory, 'script.sql');
  writeFileSync(file, script);
  const load = ['-c', String(clients), '-j', '2', '-T', String(seconds), '-M', 'prepared'];
  const { stdout, stderr } = await promisify(execFile)(findPgbench(), ['-n', '-f', file, ...load, url]);
  const rate = Number(/^tps = ([\d.]+)/m.exec(stdout)?.[1]);
  if (!(rate > 0) || /aborted|error/i.test(stderr)) throw new PgbenchError(`pgbench failed: ${stderr || stdout}`);
  return rate;
}

/** Records the statements that `work` sends; each is answered with `rows`. */
export async function statementsOf(
  work: (database: Queryable) => Promise<unknown>,
  rows: readonly object[] = [],
): Promise<Statement[]> {
  const statements: Statement[] = [];
  const query = async <Row>(text: string, values: readonly unknown[] = []): Promise<QueryResult<Row>> => {
    statements.push({ text, values });
    return { rows: rows as Row[], rowCount: rows.length };
  };
  await work({ query });
  return statements;
}

/**
 * Writes a statement for a script: with literal values, except those that `expressions` replaces.
 */
export function toScript({ text, values }: Statement, expressions: ReadonlyMap<unknown, string>): string {
  const written = text.replace(/\$(\d+)/g, (_, place) => toSql(values[Number(place) - 1], expressions));
  return `${written.trim()};\n`;
}

function toSql(value: unknown, expressions: ReadonlyMap<unknown, string>): string {
  const expression = expressions.get(value);
  if (expression !== undefined) return expression;
  if (value === null || value === undefined) return 'null';
  if (Array.isArray(value)) return `array[${value.map((each) => toSql(each, expressions)).join(', ')}]`;
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  const literal = String(value);
  // pgbench treats the text after a colon as a variable, even within quotes.
  if (literal.includes(':')) throw new PgbenchError(`a value with a colon cannot stand in a script: ${literal}`);
  return `'${literal.replaceAll("'", "''")}'`;
}

function readVersions(): string[] {
  try {
    return readdirSync(DEBIAN);
  } catch {
    return [];
  }
}

const searchPath = (): string[] => (process.env.PATH ?? '').split(path.delimiter).filter(path.isAbsolute);
