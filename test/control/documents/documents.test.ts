import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { z } from 'zod';
import type { WithAuditRecord } from '../../../lib/control/audit-part.ts';
import { Documents } from '../../../lib/control/documents/documents.ts';
import { documentRoutes } from '../../../lib/control/documents/routes/document-routes.ts';
import type { RequestContext } from '../../../lib/control/http/route.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { CnapiError } from '../../../lib/platform/errors.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { boundedText, number } from '../../../lib/protocol/api/contract/rules.ts';
import { documentNoun } from '../../../lib/protocol/api/documents/document-noun.ts';
import { freshDatabase } from '../../support/postgres.ts';

const noun = documentNoun({
  name: 'thing',
  plural: 'things',
  about: 'Things',
  fields: {
    name: boundedText(100),
    state: z.enum(['new', 'old']).default('new'),
    size: number().optional(),
  },
  indexes: { name: 'string', state: 'string', size: 'number' },
  unique: ['name'],
  version: 1,
  eventFields: ['state'],
  listColumns: ['name'],
});

const withAuditRecord: WithAuditRecord = (work) => work(undefined);

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations });
  const check = (after: { name?: unknown }) => {
    if (after.name === 'bad') throw new CnapiError('Refused', 409, 'no');
  };
  const documents = new Documents(noun, { buckets: new BucketStore({ database }), random, check });
  await documents.prepare();
  const routes = documentRoutes(documents);
  const call = async (name: string, params: Record<string, unknown>, headers: Record<string, string> = {}) => {
    const route = routes.find((one) => one.name === name);
    if (route === undefined) throw new Error(`there is no route ${name}`);
    const parsed = route.params.parse(params);
    const context = { params: parsed, header: (one: string) => headers[one], withAuditRecord };
    return await route.handler(context as unknown as RequestContext<never>);
  };
  return { database, documents, call };
}

t.test('a document is created once, with its defaults and an ETag', async (t) => {
  const { call } = await start(t);
  const uuid = randomUUID();
  const made = await call('CreateThing', { uuid, name: 'a' });
  t.match(made, { status: 201, body: { uuid, name: 'a', state: 'new' }, headers: { ETag: /^"[0-9a-f]{32}"$/ } });
  t.same((await call('GetThing', { uuid })).headers, made.headers);
  await t.rejects(call('CreateThing', { uuid, name: 'b' }), {
    code: 'EtagConflict',
    statusCode: 409,
    message: new RegExp(`^${uuid} was expected not to exist`),
  });
  await t.rejects(call('CreateThing', { name: 'a' }), {
    code: 'UniqueAttribute',
    statusCode: 409,
    message: 'There is already a thing with the name "a"',
  });
  await t.rejects(call('CreateThing', { name: 'bad' }), { code: 'Refused' });
  t.match(await call('CreateThing', { name: 'c' }), { body: { uuid: /^[0-9a-f-]{36}$/ } });
});

t.test('an update changes the given fields, null removes one, and a default is not applied again', async (t) => {
  const { call } = await start(t);
  const { body } = await call('CreateThing', { name: 'a', state: 'old', size: 1 });
  const { uuid } = body as { uuid: string };
  t.match(await call('UpdateThing', { uuid, size: 2 }), { body: { name: 'a', state: 'old', size: 2 } });
  t.same((await call('UpdateThing', { uuid, size: null })).body, { uuid, name: 'a', state: 'old' });
  await t.rejects(call('UpdateThing', { uuid, name: null }), {
    code: 'InvalidParameters',
    errors: [{ field: 'name' }],
  });
  await t.rejects(call('UpdateThing', { uuid, name: 'bad' }), { code: 'Refused' });
  const missing = randomUUID();
  for (const name of ['GetThing', 'UpdateThing', 'DeleteThing'])
    await t.rejects(call(name, { uuid: missing }), {
      code: 'ResourceNotFound',
      message: `There is no thing ${missing}`,
    });
});

t.test('a change with If-Match needs that version; without it, concurrent changes are all applied', async (t) => {
  const { call } = await start(t);
  const made = await call('CreateThing', { name: 'a' });
  const { uuid } = made.body as { uuid: string };
  const first = { 'If-Match': made.headers?.ETag ?? '' };
  const second = await call('UpdateThing', { uuid, size: 1 }, first);
  t.not(second.headers?.ETag, made.headers?.ETag);
  const mismatch = { code: 'EtagConflict', statusCode: 412 };
  await t.rejects(call('UpdateThing', { uuid, size: 2 }, first), mismatch);
  await t.rejects(call('DeleteThing', { uuid }, first), mismatch);
  for (const text of ['x', 'W/"x"', '"x", "y"'])
    await t.rejects(call('DeleteThing', { uuid }, { 'If-Match': text }), { code: 'InvalidParameters' }, text);
  await Promise.all([call('UpdateThing', { uuid, size: 3 }), call('UpdateThing', { uuid, state: 'old' })]);
  t.match(await call('GetThing', { uuid }), { body: { size: 3, state: 'old' } });
  await call('UpdateThing', { uuid, size: 4 }, { 'If-Match': '*' });
  const last = (await call('GetThing', { uuid })).headers?.ETag ?? '';
  t.match(await call('DeleteThing', { uuid }, { 'If-Match': last }), { status: 204 });
});

t.test('a list is filtered by indexed fields and read page by page', async (t) => {
  const { call, documents } = await start(t);
  for (const [name, size] of [
    ['web-1', 1],
    ['web-2', 2],
    ['db%', 1],
  ])
    await call('CreateThing', { name, size });
  const names = async (params: Record<string, unknown>) => {
    const { things, next } = (await call('ListThings', params)).body as { things: { name: string }[]; next?: string };
    return { names: things.map(({ name }) => name).toSorted(), next };
  };
  t.same(await names({}), { names: ['db%', 'web-1', 'web-2'], next: undefined });
  t.same((await names({ name: 'web*', size: '1' })).names, ['web-1']);
  t.same((await names({ name: 'db%*' })).names, ['db%']);
  t.same((await names({ state: 'old' })).names, []);
  const first = await names({ limit: 2 });
  const rest = await names({ limit: 2, after: first.next });
  t.same([...first.names, ...rest.names].toSorted(), ['db%', 'web-1', 'web-2']);
  t.equal(rest.next, undefined);
  t.same(await documents.countBy('size'), { 1: 2, 2: 1 });
});
