/**
 * Answers the routes of servers (lib/protocol/api/servers.ts). lib/control/legacy answers the posts
 * of legacy agents.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { isUuid, MAX_LIST } from '../../../protocol/api/contract/rules.ts';
import { serverContracts } from '../../../protocol/api/servers.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { answerRows } from '../../http/answer/row-stream.ts';
import { bind, empty, ok, type Route } from '../../http/route.ts';
import type { Boot } from '../boot/boot.ts';
import { withoutBootSecrets } from '../boot/boot-parameters.ts';
import type { ServerObject } from '../server.ts';
import type { RemovedServer } from '../server-store.ts';
import { ServerNotFoundError, type Servers } from '../servers.ts';
import {
  lastHeartbeatOf,
  type OverprovisionRatios,
  pickFields,
  type RecordedStatusChange,
  selectParts,
  toListedServer,
  toServer,
  toStatusChange,
} from './server-view.ts';

interface ServerRouteDeps {
  servers: Pick<Servers, 'list' | 'get' | 'update' | 'remove' | 'removeDefaults'>;
  roster: {
    /** Newest first. */
    statusHistory(serverUuid: string, page: { limit: number; offset: number }): Promise<RecordedStatusChange[]>;
    /** A server was removed: closes its session on any instance. */
    serverRemoved(serverUuid: string, removed: RemovedServer): void;
  };
  boot: Pick<Boot, 'checkPlatformImage'>;
  /** This instance. */
  cnapiUuid: string;
  /** When bytes last arrived here from the server over its session, ISO 8601; null if none did. */
  lastHeartbeat(serverUuid: string): string | null;
  config: { placementRatios: OverprovisionRatios };
}

const STATUS_PAGE = 100;
/** Answer memory of a list: its first chunk, that chunk's text, and the part of it not sent yet. */
const LIST_BYTES = 2 * 1024 * 1024;
/** Without the wide parts a server has about 700 bytes: the longest list is one statement. */
const NARROW_CHUNK = { rows: MAX_LIST, bytes: (3 * LIST_BYTES) / 8 };

/** Triton's CNAPI takes any integer for `offset`, and its store refuses a negative one. */
class NegativeOffsetError extends CnapiError {
  constructor() {
    super('InternalError', 500, 'OFFSET must not be negative');
  }
}

export function serverRoutes({ servers, roster, boot, cnapiUuid, lastHeartbeat, config }: ServerRouteDeps): Route[] {
  return bind(
    serverContracts,
    {
      async ListServers({ params, actor }) {
        const { uuids, setup, headnode, reserved, reservoir, hostname, extras, fields, offset = 0 } = params;
        if (offset < 0) throw new NegativeOffsetError();
        const knownUuids = uuids?.filter(isUuid).map((one) => one.toLowerCase());
        const heartbeatOf = extras && ((server: ServerObject) => lastHeartbeatOf(lastHeartbeat, server));
        const partSelection = selectParts(extras);
        const seen = viewFor(actor);
        const query = { filter: { uuids: knownUuids, setup, headnode, reserved, reservoir, hostname }, partSelection };
        return answerRows<unknown, string>({
          limit: params.limit ?? MAX_LIST,
          firstChunk: partSelection.report || partSelection.sysinfo ? undefined : NARROW_CHUNK,
          async read(last, { rows, bytes }) {
            const after = last ?? params.after;
            const skipped = last === undefined ? Math.min(offset, Number.MAX_SAFE_INTEGER) : 0;
            const part = { limit: rows, offset: skipped, after, bytes };
            const { servers: read, next } = await servers.list({ ...query, part });
            return {
              rows: read.map((server) =>
                pickFields(toListedServer(seen(server), extras, config.placementRatios, heartbeatOf), fields),
              ),
              next,
            };
          },
        });
      },
      async GetServer({ params, actor }) {
        const found = await servers.get(params.server_uuid);
        if (found === undefined) throw new ServerNotFoundError(params.server_uuid);
        return ok(toServer(viewFor(actor)(found.server), config.placementRatios, lastHeartbeat));
      },
      async UpdateServer({ params }) {
        const { server_uuid, etag_retries, ...update } = params;
        await boot.checkPlatformImage(update.boot_platform);
        await servers.update(server_uuid, update, etag_retries ?? 0);
        return empty(204);
      },
      async DeleteServer({ params }) {
        if (params.server_uuid === 'default') await servers.removeDefaults();
        else roster.serverRemoved(params.server_uuid, await servers.remove(params.server_uuid, cnapiUuid));
        return empty(200);
      },
      async GetStatusHistory({ params }) {
        const page = { limit: params.limit ?? STATUS_PAGE, offset: params.offset ?? 0 };
        const changes = await roster.statusHistory(params.server_uuid, page);
        // A removed server still has a history; an unknown one has none.
        if (changes.length === 0 && (await servers.get(params.server_uuid)) === undefined) {
          throw new ServerNotFoundError(params.server_uuid);
        }
        return ok(changes.map(toStatusChange));
      },
    },
    { ListServers: { answerBytes: LIST_BYTES }, GetStatusHistory: { answerBytes: 1024 * 1024 } },
  );
}

/**
 * Who may change servers sees all of them; others do not see what kernel arguments, flags and
 * modules say.
 */
const viewFor = (actor: Actor): ((server: ServerObject) => ServerObject) =>
  hasRight(actor, 'boot-secrets') ? (server) => server : withoutBootSecrets;
