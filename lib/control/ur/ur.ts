/**
 * What Ur says and hears, and what an instance does about it. Ur is the program of Triton's servers
 * that have no agent yet; it speaks AMQP through the exchange `amq.topic` (docs/design/ur.md).
 * Everything that comes from the broker may come from anybody who has its password. Pure:
 * `ur-consumer.ts` and `ur-posts.ts` do the rest.
 *
 *     ur.startup.UUID, ur.sysinfo.UUID[.ID]    from Ur: a sysinfo, at its start, and each minute until it is set up
 *     ur.execute.UUID.ID                       to Ur: {type: script, script, args, env}, {type: file, file}
 *     ur.execute-reply.UUID.ID                 from Ur: {stdout, stderr, exit_status}
 *
 * A server by Ur, in the roster's row:
 *
 *     no row, `removed` or `ur-silent` ──message, not set up──▶ running, no run, `ur-sysinfo`
 *     running by Ur ──message──▶ running by Ur
 *     running by Ur ──no message for urSilenceMs of an observer's healthy ticks──▶ unknown, `ur-silent`
 *     running by Ur ──session accepted──▶ connected        ──legacy heartbeat──▶ legacy-heartbeat
 *     set up, or any other reason ──message──▶ unchanged, and the message is dropped
 *
 * So a server that had an agent is never Ur's again, until an operator removes it.
 */
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { JsonLimitError, type JsonObject, parseBoundedJson } from '../../protocol/json/bounded-json.ts';
import { MAX_FRAME_VALUES } from '../../protocol/limits.ts';
import type { RosterRow, StatusReason } from '../roster/status/authority-row.ts';
import type { ServerDocument } from '../servers/server.ts';

export const EXCHANGE = 'amq.topic';
/** Shared by all instances. */
export const SHARED_QUEUE = 'ur.cnapi';
export const SHARED_BINDINGS = ['ur.startup.#', 'ur.sysinfo.#'];
/** Messages older than this are dropped; Ur repeats them every minute. */
export const MESSAGE_LIFETIME_MS = 90_000;

/** A sysinfo of a server has about 40 KB. */
const MAX_SYSINFO_BYTES = 1024 * 1024;

/** A message of Ur that can be used. */
interface UrMessage {
  kind: 'startup' | 'sysinfo';
  serverUuid: string;
  sysinfo: JsonObject;
}

/** Why a message is dropped: a word for metrics and the log, which never has the content. */
type UrDefect = 'routing-key' | 'too-large' | 'not-json' | 'too-complex' | 'not-a-sysinfo' | 'wrong-uuid';

export function readUrMessage(routingKey: string, content: Buffer): UrMessage | { defect: UrDefect } {
  const [ur, kind, uuid] = routingKey.split('.');
  if (ur !== 'ur' || (kind !== 'startup' && kind !== 'sysinfo') || uuid === undefined || !isUuid(uuid))
    return { defect: 'routing-key' };
  if (content.length > MAX_SYSINFO_BYTES) return { defect: 'too-large' };
  const parsed = parseObject(content);
  if ('defect' in parsed) return { defect: parsed.defect === 'not-an-object' ? 'not-a-sysinfo' : parsed.defect };
  const sysinfo = parsed.value;
  const serverUuid = uuid.toLowerCase();
  if (typeof sysinfo.UUID !== 'string') return { defect: 'not-a-sysinfo' };
  return sysinfo.UUID.toLowerCase() === serverUuid ? { kind, serverUuid, sysinfo } : { defect: 'wrong-uuid' };
}

/**
 * A server whose row says so had no agent since it was new or was removed. In SQL:
 * `cnapi_record_ur_messages`.
 */
export const REASONS_WITHOUT_AGENT: readonly StatusReason[] = ['removed', 'ur-sysinfo', 'ur-silent'];

/** Whether a message may change a server: `before` and `row` are what is stored of it. */
export const mayChange = (
  before: Pick<ServerDocument, 'setup'> | undefined,
  row: Pick<RosterRow, 'reason'> | undefined,
): boolean => before?.setup !== true && (row === undefined || REASONS_WITHOUT_AGENT.includes(row.reason));

/** @returns the object in this JSON text, or why there is none */
export function parseObject(
  content: Buffer,
): { value: JsonObject } | { defect: 'not-json' | 'too-complex' | 'not-an-object' } {
  try {
    const value = parseBoundedJson(content.toString('utf8'), { maxValues: MAX_FRAME_VALUES });
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? { value: value as JsonObject } : { defect: 'not-an-object' };
  } catch (error) {
    return { defect: error instanceof JsonLimitError ? 'too-complex' : 'not-json' };
  }
}
