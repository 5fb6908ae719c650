/** Servers: list, read, update, remove; the status history. */
import { z } from 'zod';
import { answer, contracts, errorResponse, extensibleObject, type Known } from './contract/contract.ts';
import {
  array,
  BAD_REQUEST,
  boolean,
  booleanText,
  integer,
  list,
  MAX_LIST,
  number,
  object,
  plainInteger,
  serverUuid,
  trimmedText,
  uuid,
  uuidOrDefault,
} from './contract/rules.ts';

export const noServer = { 404: errorResponse('No such server', 'ResourceNotFound') };

const example = {
  uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  status: 'running',
  hostname: 'headnode',
  setup: true,
  headnode: true,
  reserved: false,
  reservoir: false,
  ram: 4095,
};

const json = z.record(z.string(), z.unknown());
const bytes = z.number().optional();

/** What the agent's last report says about memory. */
const memory = {
  memory_available_bytes: bytes,
  memory_arc_bytes: bytes,
  memory_total_bytes: bytes,
  memory_provisionable_bytes: bytes.describe(
    'All memory, less the share that is reserved, less the maximum of each VM',
  ),
};

/** What the agent's last report says about its disks. */
const disk = {
  disk_cores_quota_bytes: bytes,
  disk_cores_quota_used_bytes: bytes,
  disk_installed_images_used_bytes: bytes,
  disk_kvm_quota_bytes: bytes,
  disk_kvm_quota_used_bytes: bytes,
  disk_kvm_zvol_used_bytes: bytes,
  disk_kvm_zvol_volsize_bytes: bytes,
  disk_pool_alloc_bytes: bytes,
  disk_pool_size_bytes: bytes,
  disk_system_used_bytes: bytes,
  disk_zone_quota_bytes: bytes,
  disk_zone_quota_used_bytes: bytes,
};

/** Absent: not known yet, or not asked for. The defaults of new servers have few of them. */
const properties = {
  hostname: z.string().optional(),
  datacenter: z.string().optional(),
  created: z.string().optional(),
  setup: z.boolean().optional(),
  setting_up: z.boolean().optional(),
  headnode: z.boolean().optional(),
  reserved: z.boolean().optional(),
  reservoir: z.boolean().optional(),
  ram: z.int().optional().describe('MiB'),
  system_type: z.string().optional(),
  current_platform: z.string().optional(),
  last_boot: z.string().optional(),
  next_reboot: z.string().optional(),
  transitional_status: z.string().optional(),
  boot_platform: z.string().optional(),
  boot_params: json.optional(),
  boot_modules: z.array(z.unknown()).optional(),
  kernel_flags: json.optional(),
  default_console: z.string().optional(),
  serial: z.string().optional(),
  comments: z.string().optional(),
  rack_identifier: z.string().optional(),
  reservation_ratio: z.number().optional(),
  traits: json.optional(),
  overprovision_ratios: answer({ cpu: z.number(), ram: z.number(), disk: z.number() }).optional(),
  agents: z.array(json).optional(),
  vms: z.record(z.string(), json).optional().describe('By uuid'),
  ...memory,
  ...disk,
  sysinfo: json.optional(),
  last_heartbeat: z.string().nullable().optional().describe('When its agent was last heard'),
};

const uuidOfServer = z.string().describe("The server's, or `default` for the defaults of new servers");
const status = z.enum(['running', 'unknown', 'rebooting']);

const server = extensibleObject({ uuid: uuidOfServer, status, ...properties }).meta({ id: 'Server' });

/** A server as REST serves it. */
export type Server = Known<z.output<typeof server>>;

const listedServer = extensibleObject({ uuid: uuidOfServer.optional(), status: status.optional(), ...properties })
  .describe('Without `fields`, `uuid` and `status` are always present; with it, only the named properties are')
  .meta({ id: 'ListedServer' });

/** A server of a list whose `fields`, if any, name the uuid. */
export const namedServer = listedServer.required({ uuid: true });
export type NamedServer = z.output<typeof namedServer>;

/** The status in the roster, where a server that reboots has one of the two as well. */
const rosterStatus = z.enum(['running', 'unknown']);
export type ServerStatus = z.output<typeof rosterStatus>;

const statusChange = answer({
  status: rosterStatus,
  previous: rosterStatus.nullable(),
  reason: z.string(),
  message: z.string().describe('The reason as a sentence'),
  since: z.string(),
  cnapi_uuid: z.string().nullable().describe('The instance that decided it'),
  epoch: z.int(),
}).meta({ id: 'StatusChange' });

export type StatusChange = Known<z.output<typeof statusChange>>;

/** A value outside 1..1000 is the one failure that Triton's CNAPI answers with 400. */
const listLimit = plainInteger('limit')
  .refine((value) => value >= 1 && value <= MAX_LIST, {
    message: `limit must be in the range 1-${MAX_LIST} (inclusive)`,
    params: BAD_REQUEST,
  })
  .meta({ type: 'integer', minimum: 1, maximum: MAX_LIST });

const flag = (name: string) => booleanText(`Invalid value for param '${name}'`).optional();

const WORDS = /^[a-zA-Z_]+$/;

export const serverContracts = contracts({
  ListServers: {
    method: 'GET',
    path: '/servers',
    summary: 'Servers in order of uuid, filtered; the wider parts when `extras` names them',
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      uuids: list('uuids', /^[-a-zA-Z0-9]+$/)
        .optional()
        .describe('Comma-separated'),
      setup: flag('setup').describe('Only servers that are set up, or only those that are not'),
      headnode: flag('headnode').describe('Only headnodes, or only others'),
      reserved: flag('reserved').describe('Only reserved servers, or only others'),
      reservoir: flag('reservoir').describe('Only servers of the reservoir, or only others'),
      hostname: trimmedText().optional().describe('Only servers with exactly this hostname'),
      extras: list('extras', WORDS)
        .optional()
        .describe('Properties to add, of agents, vms, memory, disk, sysinfo, capacity, status, last_heartbeat, all'),
      fields: list('fields', WORDS).optional().describe('Only these properties, after `extras` has added some'),
      limit: listLimit
        .optional()
        .describe(`At most this many: 1 to ${MAX_LIST}, which is also the default; the rest of the list by \`after\``),
      offset: plainInteger('offset').optional().describe('Leaves out this many at the beginning; 0 when absent'),
      after: uuid()
        .optional()
        .describe(
          'Only servers whose uuid is greater. Pages by `after` miss no server that exists throughout, unlike `offset`',
        ),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(listedServer), example: [example] } },
  },
  GetServer: {
    method: 'GET',
    path: '/servers/:server_uuid',
    summary: 'A server with all its parts, or the defaults of new servers',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ server_uuid: uuidOrDefault() }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: server, example }, ...noServer },
  },
  UpdateServer: {
    method: 'POST',
    path: '/servers/:server_uuid',
    summary: 'Changes properties of a server',
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      ...serverUuid,
      agents: array().optional(),
      boot_params: object().optional(),
      boot_platform: trimmedText().optional(),
      comments: trimmedText().optional(),
      datacenter: trimmedText().optional(),
      default_console: trimmedText().optional(),
      etag_retries: integer('etag_retries', 0, 100).optional(),
      next_reboot: trimmedText().optional().describe('ISO 8601; empty to clear'),
      nics: array().optional().describe('No effect'),
      overprovision_ratios: object().optional().describe('Checked, not stored'),
      rack_identifier: trimmedText().optional(),
      reservation_ratio: number().optional(),
      reserved: boolean().optional(),
      reservoir: boolean().optional(),
      serial: trimmedText().optional(),
      setting_up: boolean().optional(),
      setup: boolean().optional(),
      traits: object().optional(),
      transitional_status: trimmedText().optional(),
    }),
    preconditions: ['server'],
    responses: {
      204: { description: 'Changed' },
      ...noServer,
      409: errorResponse('A value that cannot be, or a conflict of writes', 'InvalidArgument', 'EtagConflict'),
    },
  },
  DeleteServer: {
    method: 'DELETE',
    path: '/servers/:server_uuid',
    summary: 'Deletes a server; its agent is disconnected, and registers again if it reconnects',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ server_uuid: uuidOrDefault() }),
    preconditions: [],
    responses: { 200: { description: 'Forgotten' }, ...noServer },
  },
  GetStatusHistory: {
    method: 'GET',
    path: '/servers/:server_uuid/status-history',
    summary: "Every change of a server's status, newest first, with who said so and why",
    tag: 'servers',
    origin: 'own',
    params: z.object({
      ...serverUuid,
      limit: integer('limit', 1, MAX_LIST).optional().describe('100 when absent'),
      offset: integer('offset', 0, 1_000_000_000)
        .optional()
        .describe('Leaves out this many at the beginning; 0 when absent'),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(statusChange) }, ...noServer },
  },
});
