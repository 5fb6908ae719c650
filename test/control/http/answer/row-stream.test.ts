import t from 'tap';
import { answerRows } from '../../../../lib/control/http/answer/row-stream.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { startApi } from '../support.ts';

/** Numbers from 1; `read` waits until the test lets it go on. */
function countingSource(limit: number) {
  const asked: { after: number; rows: number; answer: (error?: Error) => void }[] = [];
  const read = (after = 0, { rows }: { rows: number }) =>
    new Promise<{ rows: { n: number }[]; next: number | undefined }>((resolve, reject) => {
      const answer = (error?: Error) => {
        if (error !== undefined) reject(error);
        else resolve({ rows: Array.from({ length: rows }, (_, n) => ({ n: after + n + 1 })), next: after + rows });
      };
      asked.push({ after, rows, answer });
    });
  return { asked, answer: answerRows<{ n: number }, number>({ limit, read }) };
}

async function streamOf({ answer, asked }: ReturnType<typeof countingSource>) {
  asked[0]?.answer();
  const answered = await answer;
  if (!('rows' in answered)) throw new Error('the answer is not a stream');
  return answered.rows;
}

t.test('each chunk is read while the one before it is sent, and every row is answered once', async (t) => {
  const source = countingSource(1_000);
  const { first, rest } = await streamOf(source);
  const texts = [first];
  for (let chunk = 1; ; chunk += 1) {
    t.equal(source.asked.length, chunk + 1, `chunk ${chunk + 1} is asked for before anybody takes chunk ${chunk}`);
    source.asked[chunk]?.answer();
    const { value } = await rest.next();
    texts.push(value.text);
    if (value.isLast) break;
  }
  const rows = JSON.parse(`[${texts.join(',')}]`) as { n: number }[];
  t.same(
    rows.map(({ n }) => n),
    Array.from({ length: 1_000 }, (_, n) => n + 1),
  );
  t.ok(source.asked.length <= 4, `${source.asked.length} statements for 1,000 small rows`);
});

t.test('a source of small rows may give them all in its first chunk', async (t) => {
  const sizes: unknown[] = [];
  const rows = Array.from({ length: 1_000 }, (_, n) => ({ n }));
  const answer = await answerRows<{ n: number }, number>({
    limit: 1_000,
    firstChunk: { rows: 5_000, bytes: 700_000 },
    read: async (_after, size) => {
      sizes.push(size);
      return { rows, next: undefined };
    },
  });
  t.same(sizes, [{ rows: 1_000, bytes: 700_000 }], 'no more rows than the limit');
  t.same(JSON.parse('text' in answer ? answer.text.content : ''), rows);
});

t.test('a chunk that cannot be read ends the stream with its error', async (t) => {
  const source = countingSource(1_000);
  const { rest } = await streamOf(source);
  source.asked[1]?.answer(new Error('the database is away'));
  await t.rejects(rest.next(), { message: 'the database is away' });
});

t.test('a caller who leaves while a chunk is read leaves no unhandled error behind', async (t) => {
  const source = countingSource(1_000);
  const { rest } = await streamOf(source);
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  t.teardown(() => process.off('unhandledRejection', note));
  await rest.return?.();
  source.asked[1]?.answer(new Error('the database is away'));
  await new Promise((resolve) => setImmediate(resolve));
  t.same(unhandled, []);
});

t.test('a page of servers without wide parts is read in one statement', async (t) => {
  const { call, servers } = await startApi(t);
  const uuids = Array.from({ length: 120 }, () => systemRandom.uuid()).sort();
  await Promise.all(uuids.map((uuid) => servers.recordSysinfo(uuid, { UUID: uuid })));
  const read: number[] = [];
  const list = servers.list.bind(servers);
  servers.list = async (query) => {
    const part = await list(query);
    read.push(part.servers.length);
    return part;
  };
  const listed = async (query: string) => (await call('GET', `/servers?${query}`)).body.length;
  t.same([await listed('limit=1000'), read.splice(0)], [120, [120]]);
  t.same([await listed('limit=100&fields=uuid'), read.splice(0)], [100, [100]]);
  t.equal(await listed('extras=sysinfo'), 120);
  t.equal(read[0], 16, 'wide rows begin with a few');
});
