import t from 'tap';
import { StreamResume } from '../../../lib/cli/exec/stream-resume.ts';
import { ApiError, CredentialsError, NoAnswerError } from '../../../lib/client/client-errors.ts';
import { ManualClock } from '../../support/manual-clock.ts';

/** More than all pauses take together. */
const LONG_MS = 100_000;

function world({ fraction = 0 } = {}) {
  const clock = new ManualClock();
  const stopped = Promise.withResolvers<number>();
  const random = { uuid: () => '', fraction: () => fraction };
  const all = { arrived: 0 };
  const resume = new StreamResume({ clock, random, stopped: stopped.promise, arrived: () => all.arrived });
  const startedAt: number[] = [];
  const begunAt = clock.now();
  /** Settles while the clock passes all pauses. */
  const again = async (error?: Error) => {
    const ended = resume.again(async () => {
      startedAt.push(clock.now() - begunAt);
      if (error !== undefined) throw error;
      return { opened: true };
    });
    const result = ended.then(
      (value) => ({ value }),
      (thrown: unknown) => ({ thrown }),
    );
    await clock.advance(LONG_MS);
    return result;
  };
  return { all, again, startedAt, stopped, clock };
}

const refused = (statusCode: number) =>
  new ApiError('Refused', statusCode, 'no', { address: '', requestId: undefined });

t.test('pauses grow to a limit, with jitter, and the last error is thrown', async (t) => {
  const error = new NoAnswerError('GET /', []);
  for (const { fraction, most } of [
    { fraction: 0, most: 2_000 },
    { fraction: 0.5, most: 3_000 },
  ]) {
    const { again, startedAt } = world({ fraction });
    t.same(await again(error), { thrown: error });
    const pauses = startedAt.map((at, index) => at - (startedAt[index - 1] ?? 0));
    t.same(pauses.slice(0, 4), [most / 8, most / 4, most / 2, most]);
    t.same(
      pauses.slice(4),
      Array.from({ length: 8 }, () => most),
    );
  }
});

t.test('a refusal that time cannot change is tried once', async (t) => {
  for (const error of [refused(400), refused(401), refused(403), refused(404), new CredentialsError('none')]) {
    const { again, startedAt } = world();
    t.same(await again(error), { thrown: error });
    t.equal(startedAt.length, 1);
  }
  for (const error of [refused(409), refused(429), refused(503)]) {
    const { again, startedAt } = world();
    await again(error);
    t.equal(startedAt.length, 12, `${error.statusCode}`);
  }
});

t.test('streams that open and break without anything new end', async (t) => {
  const { all, again, startedAt } = world();
  const started = { value: { opened: true } };
  for (let n = 1; n <= 12; n += 1) t.same(await again(), started);
  t.same(await again(), { value: undefined });
  t.equal(startedAt.length, 12);
  all.arrived += 1;
  t.same(await again(), started, 'one that brought something is continued again');
});

t.test('a caller who wants no more ends the pause', async (t) => {
  const { again, startedAt, stopped } = world();
  stopped.resolve(130);
  t.same(await again(), { value: 130 });
  t.same(startedAt, []);
});
