/**
 * Servers: list, read, update, remove; the status history. `legacy-agent-routes.ts` has the posts
 * of legacy agents.
 */
import { z } from 'zod';
import { CnapiError } from '../../../platform/errors.ts';
import type { ServerObject } from '../server.ts';
import { ServerNotFoundError } from '../servers.ts';
import { empty, ok, type Route, route } from '../../http/route.ts';
import { answerRows, ROW_STREAM_BYTES } from '../../http/row-stream.ts';
import {
  array,
  BAD_REQUEST,
  boolean,
  booleanText,
  integer,
  isUuid,
  list,
  number,
  object,
  plainInteger,
  trimmedText,
  uuid,
  uuidOrDefault,
} from '../../../protocol/api/rules.ts';
import { lastHeartbeatOf, narrow, OVERPROVISION_RATIOS, partSelectionOf, pick } from './server-view.ts';

export const serverUuid = { server_uuid: uuid() };

export const noServer = { 404: { description: 'No such server' } };

const serverExample = {
  uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  status: 'running',
  hostname: 'headnode',
  setup: true,
  headnode: true,
  reserved: false,
  reservoir: false,
  ram: 4095,
};

const serverSchema = z
  .looseObject({
    uuid: z.string(),
    status: z.enum(['running', 'unknown', 'rebooting']),
    hostname: z.string().optional(),
    setup: z.boolean().optional(),
    headnode: z.boolean().optional(),
    ram: z.int().optional(),
  })
  .meta({ id: 'Server' });

/** A projection may leave out any field. */
const listedServer = z.looseObject({
  uuid: z.string().optional(),
  status: z.enum(['running', 'unknown', 'rebooting']).optional(),
  hostname: z.string().optional(),
  setup: z.boolean().optional(),
  headnode: z.boolean().optional(),
  ram: z.int().optional(),
});

export const MAX_LIST = 1000;

/** A value outside 1..1000 is the one failure that the reference answers with 400. */
const listLimit = plainInteger('limit').refine((value) => value >= 1 && value <= MAX_LIST, {
  message: `limit must be in the range 1-${MAX_LIST} (inclusive)`,
  params: BAD_REQUEST,
});

const flag = (name: string) => booleanText(`Invalid value for param '${name}'`).optional();

/** The reference takes any integer for `offset`, and its store refuses a negative one. */
class NegativeOffsetError extends CnapiError {
  constructor() {
    super('InternalError', 500, 'OFFSET must not be negative');
  }
}

const WORDS = /^[a-zA-Z_]+$/;

export const serverRoutes: Route[] = [
  route({
    name: 'ListServers',
    method: 'GET',
    path: '/servers',
    summary: 'Servers in order of uuid, filtered; the wider parts when `extras` names them',
    answerBytes: ROW_STREAM_BYTES,
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      uuids: list('uuids', /^[-a-zA-Z0-9]+$/)
        .optional()
        .describe('Comma-separated'),
      setup: flag('setup'),
      headnode: flag('headnode'),
      reserved: flag('reserved'),
      reservoir: flag('reservoir'),
      hostname: trimmedText().optional(),
      extras: list('extras', WORDS)
        .optional()
        .describe('Of agents, vms, memory, disk, sysinfo, capacity, status, last_heartbeat, all'),
      fields: list('fields', WORDS).optional().describe('Only these properties, of those there are after `extras`'),
      limit: listLimit.optional(),
      offset: plainInteger('offset').optional(),
      after: uuid()
        .optional()
        .describe(
          'Only servers whose uuid is greater. Pages by `after` miss no server that exists throughout, unlike `offset`',
        ),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(listedServer), example: [serverExample] } },
    async handler({ params, services }) {
      const { uuids, setup, headnode, reserved, reservoir, hostname, extras, fields, offset = 0 } = params;
      if (offset < 0) throw new NegativeOffsetError();
      const known = uuids?.filter(isUuid).map((one) => one.toLowerCase());
      const beatOf = extras && ((server: ServerObject) => lastHeartbeatOf(services, server));
      const query = {
        filter: { uuids: known, setup, headnode, reserved, reservoir, hostname },
        partSelection: partSelectionOf(extras),
      };
      return answerRows<unknown, string>({
        limit: params.limit ?? MAX_LIST,
        async read(last, { rows, bytes }) {
          const after = last ?? params.after;
          const skipped = last === undefined ? Math.min(offset, Number.MAX_SAFE_INTEGER) : 0;
          const part = { limit: rows, offset: skipped, after, bytes };
          const { servers, next } = await services.servers.list({ ...query, part });
          return { rows: servers.map((server) => pick(narrow(server, extras, beatOf), fields)), next };
        },
      });
    },
  }),
  route({
    name: 'GetServer',
    method: 'GET',
    path: '/servers/:server_uuid',
    summary: 'A server with all its parts, or the defaults of new servers',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ server_uuid: uuidOrDefault() }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: serverSchema, example: serverExample }, ...noServer },
    async handler({ params, services }) {
      const found = await services.servers.get(params.server_uuid);
      if (found === undefined) throw new ServerNotFoundError(params.server_uuid);
      const overprovision_ratios = OVERPROVISION_RATIOS;
      return ok({ ...found.server, overprovision_ratios, last_heartbeat: lastHeartbeatOf(services, found.server) });
    },
  }),
  route({
    name: 'UpdateServer',
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
      409: { description: 'A value that cannot be, or a conflict of writes' },
    },
    async handler({ params, services }) {
      const { server_uuid, etag_retries, ...update } = params;
      await services.servers.update(server_uuid, update, etag_retries ?? 0);
      return empty(204);
    },
  }),
  route({
    name: 'DeleteServer',
    method: 'DELETE',
    path: '/servers/:server_uuid',
    summary: 'Deletes a server; its agent is disconnected, and registers again if it reconnects',
    tag: 'servers',
    origin: 'reference',
    params: z.object({ server_uuid: uuidOrDefault() }),
    preconditions: [],
    responses: { 200: { description: 'Forgotten' }, ...noServer },
    async handler({ params, services }) {
      const { servers, roster } = services;
      if (params.server_uuid === 'default') await servers.removeDefaults();
      else roster.serverRemoved(params.server_uuid, await servers.remove(params.server_uuid, roster.cnapiUuid));
      return empty(200);
    },
  }),
  route({
    name: 'GetStatusHistory',
    method: 'GET',
    path: '/servers/:server_uuid/status-history',
    summary: "Every change of a server's status, newest first, with who said so and why",
    answerBytes: 1024 * 1024,
    tag: 'servers',
    origin: 'own',
    params: z.object({
      ...serverUuid,
      limit: integer('limit', 1, MAX_LIST).optional(),
      offset: integer('offset', 0, 1_000_000_000).optional(),
    }),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: z.array(
          z.looseObject({
            status: z.string(),
            previous: z.string().nullable(),
            reason: z.string(),
            since: z.string(),
            cnapi_uuid: z.string().nullable(),
            epoch: z.int(),
          }),
        ),
      },
      ...noServer,
    },
    async handler({ params, services }) {
      const page = { limit: params.limit ?? 100, offset: params.offset ?? 0 };
      const changes = await services.roster.statusHistory(params.server_uuid, page);
      // A removed server still has a history; an unknown one has none.
      if (changes.length === 0 && (await services.servers.get(params.server_uuid)) === undefined) {
        throw new ServerNotFoundError(params.server_uuid);
      }
      return ok(changes);
    },
  }),
];
