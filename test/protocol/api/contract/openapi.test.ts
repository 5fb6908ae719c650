import t from 'tap';
import { z } from 'zod';
import { catalogueOf } from '../../../../lib/agent/catalogue.ts';
import type { Images } from '../../../../lib/agent/images/images.ts';
import type { SettingsKeeper } from '../../../../lib/agent/settings/settings-keeper.ts';
import type { AgentStreams } from '../../../../lib/agent/streams/agent-streams.ts';
import type { Vms } from '../../../../lib/agent/vms/vms.ts';
import type { Zfs } from '../../../../lib/agent/zfs/zfs.ts';
import { allContracts } from '../../../../lib/protocol/api/all-contracts.ts';
import { pathParamsOf, requiredRoleOf } from '../../../../lib/protocol/api/contract/contract.ts';
import { openApiBytes, openApiDocument } from '../../../../lib/protocol/api/contract/openapi.ts';
import { serverSetupContracts } from '../../../../lib/protocol/api/server-setup.ts';
import { PUSH_TASK } from '../../../../lib/protocol/push.ts';
import { DISK_PARAMS } from '../../../../lib/protocol/server-setup.ts';
import { STREAM_TASKS } from '../../../../lib/protocol/streams/stream.ts';
import { TASK_KINDS, taskKind } from '../../../../lib/protocol/tasks.ts';

const body = JSON.parse(openApiDocument(allContracts, '1.2.3'));

t.test('the OpenAPI document describes each contract', (t) => {
  t.equal(body.openapi, '3.1.0');
  const operations = Object.values(body.paths).flatMap((path) => Object.values(path as object));
  t.equal(operations.length, allContracts.length);
  t.equal(new Set(operations.map(({ operationId }) => operationId)).size, allContracts.length);
  for (const contract of allContracts) {
    const operation = body.paths[contract.path.replace(/:(\w+)/g, '{$1}')]?.[contract.method.toLowerCase()];
    t.equal(operation?.operationId, contract.name);
    const inQuery = operation.parameters.map(({ name }: { name: string }) => name);
    const inBody = Object.keys(operation.requestBody?.content['application/json'].schema.properties ?? {});
    for (const name of Object.keys(contract.params.shape))
      t.ok(inQuery.includes(name) || inBody.includes(name), `${contract.name}: ${name}`);
    for (const name of pathParamsOf(contract.path)) {
      t.match(
        operation.parameters.find((one: { name: string }) => one.name === name),
        { in: 'path', required: true },
      );
    }
    const needsToken = requiredRoleOf(contract) !== 'anyone';
    const refusals = needsToken ? ['401', '403', '429'] : ['429'];
    const statuses = new Set([...Object.keys(contract.responses), ...refusals, 'default']);
    t.same(Object.keys(operation.responses).sort(), [...statuses].sort());
    for (const [status, response] of Object.entries<Record<string, unknown>>(operation.responses))
      if (Number(status) >= 400) t.ok(response.content ?? response.$ref, `${contract.name} ${status} has a body`);
    t.same(operation.security, needsToken ? [{ token: [] }] : []);
    t.equal(operation['x-role'], needsToken ? requiredRoleOf(contract) : undefined);
  }
  t.same(unresolved(body, body), [], 'every reference resolves');
  t.end();
});

t.test('every parameter of a query is described, and the limit of a list has its bounds', (t) => {
  for (const [path, methods] of Object.entries<Record<string, { parameters: Described[] }>>(body.paths))
    for (const { parameters } of Object.values(methods))
      for (const { in: where, name, description } of parameters)
        if (where === 'query') t.ok(description, `${path} ${name}`);
  const limit = body.paths['/servers'].get.parameters.find((one: Described) => one.name === 'limit');
  t.same(limit.schema, { type: 'integer', minimum: 1, maximum: 1000 });
  t.end();
});

interface Described {
  in: string;
  name: string;
  description?: string;
}

t.test("the tasks that the API describes are the agent's, with their parameters", (t) => {
  // Nobody creates these but the control plane.
  const services = { streams: {} as AgentStreams, vms: {} as Vms, images: {} as Images, zfs: {} as Zfs };
  const all = catalogueOf({ ...services, settings: {} as SettingsKeeper });
  const offered = [...all].filter(([name]) => name !== PUSH_TASK && !Object.hasOwn(STREAM_TASKS, name));
  t.same(Object.keys(TASK_KINDS).sort(), offered.map(([name]) => name).sort());
  for (const [name, { paramNames }] of offered)
    t.same(
      Object.keys(taskKind(name).params).sort(),
      // Clients of Triton send these, and the agent refuses them.
      paramNames.filter((param) => !(DISK_PARAMS as readonly string[]).includes(param)).sort(),
      name,
    );
  const { properties } = body.paths['/servers/{server_uuid}/tasks'].post.requestBody.content['application/json'].schema;
  for (const name of Object.keys(TASK_KINDS)) t.match(properties.task.description, `\`${name}\``);
  t.end();
});

t.test('the examples of the OpenAPI document satisfy its schemas', (t) => {
  let count = 0;
  for (const contract of allContracts) {
    for (const [status, { schema, example }] of Object.entries(contract.responses)) {
      if (schema === undefined || example === undefined) continue;
      count++;
      t.ok(schema.safeParse(example).success, `${contract.name} ${status}`);
      t.ok(
        z.fromJSONSchema(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as never).safeParse(example)
          .success,
        `${contract.name} ${status}, as described`,
      );
    }
  }
  t.ok(count > 5);
  t.end();
});

t.test('each route declares what it answers when its server is not there or does not run', (t) => {
  for (const { name, preconditions, responses } of allContracts) {
    if (preconditions.includes('server')) t.ok(404 in responses, `${name} 404`);
    if (preconditions.includes('running')) t.ok(409 in responses, `${name} 409`);
  }
  for (const { name, responses } of Object.values(serverSetupContracts)) t.ok(500 in responses, `${name} 500`);
  t.end();
});

function unresolved(value: unknown, root: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const own =
    '$ref' in value && typeof value.$ref === 'string' && find(root, value.$ref) === undefined ? [value.$ref] : [];
  return [...own, ...Object.values(value).flatMap((one) => unresolved(one, root))];
}

function find(root: unknown, reference: string): unknown {
  return reference
    .slice(2)
    .split('/')
    .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], root);
}

t.test('the OpenAPI document is generated and encoded once per list', (t) => {
  const contracts = [...allContracts];
  const bytes = openApiBytes(contracts, '1.2.3');
  t.equal(openApiBytes(contracts, '1.2.3'), bytes, 'the same object');
  t.equal(bytes.toString(), openApiDocument(contracts, '1.2.3'));
  t.not(openApiBytes(allContracts.slice(1), '1.2.3').length, bytes.length, 'another list gets another document');
  t.end();
});
