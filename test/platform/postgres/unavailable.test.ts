import t from 'tap';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { asDatabaseError, isConnectionLost, unansweredError } from '../../../lib/platform/postgres/unavailable.ts';

const ofState = (code: string) => Object.assign(new Error('from the database'), { code });

t.test('an error shows whether the database is down, or only this statement has failed', async (t) => {
  const rows: [name: string, error: Error, kind: string, isConnectionLost: boolean][] = [
    ['the server is stopping', ofState('57P01'), 'down', true],
    ['the connection was refused', ofState('ECONNREFUSED'), 'down', true],
    ['there are too many connections', ofState('53300'), 'down', true],
    ['the disk is full', ofState('53100'), 'down', false],
    ['a row is locked', ofState('55P03'), 'locked', false],
    ['the statement is slow', ofState('57014'), 'slow', false],
    ['too little memory for this statement', ofState('53200'), 'resources', false],
    ['too many temporary files for this statement', ofState('53400'), 'resources', false],
    ['a wrong value', ofState('22P02'), 'own', false],
  ];
  for (const [name, error, kind, isLost] of rows) {
    t.equal(kindOf(asDatabaseError(error)), kind, name);
    t.equal(isConnectionLost(error), isLost, name);
  }
});

t.test('no answer means that the database is down, except to a large statement', async (t) => {
  const rows: [name: string, moved: { read: number; written: number }, kind: string][] = [
    ['a small statement without any answer', { read: 0, written: 500 }, 'down'],
    ['a large statement without any answer', { read: 0, written: 100_000 }, 'unanswered'],
    ['an answer that has begun to arrive', { read: 1_000, written: 500 }, 'unanswered'],
  ];
  for (const [name, moved, kind] of rows) {
    const error = unansweredError(moved, 4_000);
    t.equal(kindOf(error), kind, name);
    t.ok(isConnectionLost(error), `${name}: the connection must not be used again`);
    t.match(error.cause, /no answer from the database in 4000 ms/);
  }
});

function kindOf(error: unknown): string {
  if (error instanceof DatabaseUnavailableError) return 'down';
  return error instanceof DatabaseBusyError ? error.condition : 'own';
}
