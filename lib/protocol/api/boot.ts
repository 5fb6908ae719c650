/**
 * Boot parameters: with which platform, kernel arguments and modules a server boots. Its boot
 * loader asks for them; `default` are those of servers that are not known yet, which new servers
 * copy.
 */
import { z } from 'zod';
import { answer, contracts, errorResponse } from './contract/contract.ts';
import { array, boundedText, object, serverUuid } from './contract/rules.ts';
import { noServer } from './servers.ts';

const json = z.record(z.string(), z.unknown());

const bootParams = answer({
  platform: z.string().describe('Empty: none is chosen'),
  kernel_args: json.describe(
    'By name. Those who may not change them see `(secret)` for each that is stored, and not `rabbitmq`',
  ),
  kernel_flags: json,
  boot_modules: z
    .array(z.unknown())
    .describe('Each with `path`, `type` and `content`; those who may not change them see `(secret)` as content'),
  default_console: z.string(),
  serial: z.string(),
}).meta({ id: 'BootParams' });

const example = {
  platform: '20210101T000000Z',
  kernel_args: { hostname: 'web-1', rabbitmq: 'guest:guest:10.0.0.20:5672' },
  kernel_flags: {},
  boot_modules: [],
  default_console: 'serial',
  serial: 'ttyb',
};

const found = { description: 'OK', schema: bootParams, example };

const count = z.int();
const stats = answer({
  stats: answer({
    getObjectAttempts: count,
    getObjectErrors: count,
    getObjectNotFound: count,
    putObjectAttempts: count,
    putObjectErrors: count,
    putObjectEtagErrors: count,
  }),
}).meta({ id: 'BootParamsStats' });

const MAX_TEXT_CHARS = 200;
const text = () => boundedText(MAX_TEXT_CHARS).optional();
const removing = 'A null removes one';

/** What all routes that change something take. */
const changes = {
  boot_modules: array()
    .optional()
    .describe('At most 16, each with `path`, `content` (base64, at most 4 KiB decoded) and perhaps `type`: `base64`'),
  default_console: text(),
  serial: text(),
};
const kernelArgs = () => object().optional();
const platform = text().describe('The name of a platform (`GET /platforms`)');

const refusals = {
  409: errorResponse(
    'A module that cannot be, too long arguments, or a conflict of writes',
    'InvalidArgument',
    'EtagConflict',
  ),
  500: errorResponse("There is no such platform: `Platform 'x' does not exist`", 'InternalError'),
};

const shared = { tag: 'servers', origin: 'reference', lenient: true } as const;

export const bootContracts = contracts({
  GetBootDefaults: {
    ...shared,
    method: 'GET',
    path: '/boot/default',
    summary: 'With which parameters servers boot that are not known yet',
    params: z.object({}),
    preconditions: [],
    responses: { 200: found },
  },
  ReplaceBootDefaults: {
    ...shared,
    method: 'PUT',
    path: '/boot/default',
    summary: 'Replaces the boot parameters of servers that are not known yet; what is left out gets its initial value',
    params: z.object({ ...changes, platform, kernel_args: kernelArgs() }),
    preconditions: [],
    responses: { 204: { description: 'Replaced' }, ...refusals },
  },
  ChangeBootDefaults: {
    ...shared,
    method: 'POST',
    path: '/boot/default',
    summary:
      'Changes the boot parameters of servers that are not known yet. As in Triton, their modules are removed unless `boot_modules` names them',
    params: z.object({
      ...changes,
      platform,
      kernel_args: kernelArgs().describe(removing),
      kernel_flags: kernelArgs().describe(removing),
    }),
    preconditions: [],
    responses: { 204: { description: 'Changed' }, ...refusals },
  },
  GetBootParams: {
    ...shared,
    method: 'GET',
    path: '/boot/:server_uuid',
    summary: 'With which parameters a server boots',
    params: z.object(serverUuid),
    preconditions: [],
    responses: { 200: found, ...noServer },
  },
  ReplaceBootParams: {
    ...shared,
    method: 'PUT',
    path: '/boot/:server_uuid',
    summary:
      'Replaces the boot parameters of a server; what is left out gets its initial value, the platform the latest one',
    params: z.object({
      ...serverUuid,
      ...changes,
      platform,
      boot_platform: text().describe('The same as `platform`'),
      kernel_args: kernelArgs(),
      boot_params: kernelArgs().describe('The same as `kernel_args`'),
      kernel_flags: kernelArgs(),
    }),
    preconditions: [],
    responses: {
      200: { description: 'Replaced; how many reads and writes it took', schema: stats },
      ...noServer,
      ...refusals,
    },
  },
  ChangeBootParams: {
    ...shared,
    method: 'POST',
    path: '/boot/:server_uuid',
    summary: 'Changes boot parameters of a server; what is left out stays',
    params: z.object({
      ...serverUuid,
      ...changes,
      platform,
      boot_platform: text().describe('The same as `platform`'),
      kernel_args: kernelArgs().describe(removing),
      params: kernelArgs().describe('The same as `kernel_args`'),
      kernel_flags: kernelArgs().describe(removing),
    }),
    preconditions: [],
    responses: { 204: { description: 'Changed' }, ...noServer, ...refusals },
  },
});
