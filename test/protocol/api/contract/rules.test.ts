import t from 'tap';
import { z } from 'zod';
import { list } from '../../../../lib/protocol/api/contract/rules.ts';
import { contractList } from '../../../../lib/protocol/api/contracts.ts';
import { matchLists } from '../../../support/match-lists.ts';

type Json = Record<string, unknown>;

/** All parts of a description that are not scalars and have no maximum. */
function unbounded(schema: Json): Json[] {
  const parts = [schema.anyOf, schema.oneOf, schema.allOf].flatMap((part) => (part as Json[] | undefined) ?? []);
  const isKnown = parts.length > 0 || schema.enum !== undefined || schema.const !== undefined;
  const own =
    (schema.type === 'array' && schema.maxItems === undefined) ||
    (schema.type === 'object' && schema.maxProperties === undefined) ||
    (schema.type === undefined && !isKnown);
  return [...(own ? [schema] : []), ...parts.flatMap(unbounded)];
}

t.test('no parameter is an array or an object without a maximum', async (t) => {
  for (const { name, params } of contractList) {
    for (const [param, schema] of Object.entries(params.shape)) {
      const described = z.toJSONSchema(schema as z.ZodType, { io: 'input', unrepresentable: 'any' }) as Json;
      t.same(unbounded(described), [], `${name}: ${param}`);
    }
  }
});

t.test('a parameter fails a bounded number of times, whatever is sent', async (t) => {
  const values: [string, unknown][] = [
    ['nulls', Array(49_000).fill(null)],
    ['lists', Array(49_000).fill([])],
    ['members', Object.fromEntries(Array.from({ length: 24_000 }, (_, at) => [`k${at}`, null]))],
    ['few nulls', Array(900).fill(null)],
    ['few members', Object.fromEntries(Array.from({ length: 900 }, (_, at) => [`k${at}`, null]))],
    ['commas', ','.repeat(500_000)],
  ];
  for (const { name, params } of contractList) {
    for (const [param, schema] of Object.entries(params.shape)) {
      for (const [kind, value] of values) {
        const { error } = (schema as z.ZodType).safeParse(value);
        if ((error?.issues.length ?? 0) > 2) t.fail(`${name}: ${param}, ${kind}: ${error?.issues.length} failures`);
      }
    }
  }
  t.pass();
});

t.test('the parts of a list are not visited beyond its maximum', async (t) => {
  let visits = 0;
  const element = {
    test: () => {
      visits += 1;
      return false;
    },
  } as unknown as RegExp;
  const { error } = list('uuids', element).safeParse(','.repeat(500_000));
  matchLists(t, error?.issues, [{ message: "param 'uuids' has more than 1000 elements" }]);
  t.equal(visits, 0);
});
