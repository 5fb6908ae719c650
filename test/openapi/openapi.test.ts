/**
 * The OpenAPI document as others read it: redocly finds nothing wrong, and a client that
 * openapi-typescript generates reads typed fields without a cast. The tools are installed at the
 * first run.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { allContracts } from '../../lib/protocol/api/all-contracts.ts';
import { openApiDocument } from '../../lib/protocol/api/contract/openapi.ts';
import { matchLists } from '../support/match-lists.ts';
import { installPackages } from '../support/own-packages.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const execute = promisify(execFile);
const run = (...args: string[]) => execute(process.execPath, args);
const own = (file: string) => path.join(import.meta.dirname, file);

const OPTIONS = ['--noEmit', '--strict', '--allowImportingTsExtensions', '--module', 'nodenext', '--target', 'es2024'];

/** What a caller writes; each line is an error if the field has no type or another one. */
const SNIPPET = `
import type { components, paths } from './generated.ts';

type Schemas = components['schemas'];
type Answer<Path extends keyof paths, Method extends keyof paths[Path], Status extends number> =
  paths[Path][Method] extends { responses: infer All }
    ? Status extends keyof All ? (All[Status] extends { content: infer Content } ? Content[keyof Content] : never) : never
    : never;

export function read(
  server: Answer<'/servers/{server_uuid}', 'get', 200>,
  servers: Answer<'/servers', 'get', 200>,
  task: Answer<'/tasks/{taskid}', 'get', 200>,
  page: Answer<'/tasks', 'get', 200>,
  ticket: Answer<'/tickets/{ticket_uuid}', 'get', 200>,
  refusal: Answer<'/tickets/{ticket_uuid}/renew', 'post', 409>,
  failure: Schemas['Error'],
  event: Answer<'/events', 'get', 200>,
  step: Answer<'/tasks/{taskid}/events', 'get', 200>['data'],
): unknown[] {
  const hostname: string | undefined = server.hostname;
  const names: (string | undefined)[] = servers.map((one) => one.hostname);
  const started: string | undefined = task.started_at;
  const exitCodes: (number | undefined)[] = page.tasks.map((one) => one.exit_code);
  const status: 'queued' | 'active' | 'finished' | 'expired' = ticket.status;
  const isEnded: boolean = refusal.code === 'TicketEnded';
  const isUnknown: boolean = failure.code === 'ResourceNotFound';
  const fields: string[] | undefined = failure.errors?.map((one) => one.field);
  const change: string = event.event === 'status' ? event.data.server_uuid : event.event;
  const scope: string | undefined = event.event === 'ticket' ? event.data.scope : undefined;
  const output: string | undefined = step.name === 'output' ? step.data.text : undefined;
  const outcome: string | undefined = step.name === 'end' ? step.data.status : undefined;
  return [hostname, names, started, exitCodes, status, isEnded, isUnknown, fields, change, scope, output, outcome];
}
`;

t.test('the OpenAPI document', async (t) => {
  await installPackages(import.meta.dirname);
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-openapi-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const document = path.join(folder, 'openapi.json');

  t.test('has nothing that redocly would change', async (t) => {
    const found = async (text: string) => {
      writeFileSync(document, text);
      return JSON.parse((await run(own('lint.mjs'), document)).stdout) as { ruleId: string }[];
    };
    const text = openApiDocument(allContracts, '1.2.3');
    t.same(await found(text), []);
    matchLists(t, await found(text.replace('"license"', '"x-license"')), [{ ruleId: 'info-license' }], 'the rules run');
  });

  t.test('makes a typed client', async (t) => {
    t.same(await compiled(openApiDocument(allContracts, '1.2.3')), '');
  });

  t.test('is noticed when it loses a field that the client reads', async (t) => {
    const without = (field: string) => openApiDocument(allContracts, '1.2.3').replaceAll(`"${field}":`, '"lost":');
    t.match(await compiled(without('started_at')), /Property 'started_at' does not exist/);
    t.match(await compiled(without('hostname')), /Type 'unknown' is not assignable to type 'string \| undefined'/);
  });

  /** Generates a client, and returns what the compiler says about the snippet that uses it. */
  async function compiled(text: string): Promise<string> {
    writeFileSync(document, text);
    const generator = own('node_modules/openapi-typescript/bin/cli.js');
    await run(generator, document, '--output', path.join(folder, 'generated.ts'));
    writeFileSync(path.join(folder, 'snippet.ts'), SNIPPET);
    return run(own('node_modules/typescript/bin/tsc'), ...OPTIONS, path.join(folder, 'snippet.ts')).then(
      ({ stdout, stderr }) => stdout + stderr,
      ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr || 'it failed and said nothing',
    );
  }
});
