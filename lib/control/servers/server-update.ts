/**
 * Which fields of a server callers may change (`POST /servers/:server_uuid`), and the rules for
 * them. Pure; called by `servers.ts`.
 */

import { CnapiError } from '../../platform/errors.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { checkArguments } from './boot/boot-parameters.ts';
import type { ServerDocument } from './server.ts';

/** Keys as on the wire. `nics` is accepted and has no effect, as in Triton's CNAPI. */
export interface ServerUpdate {
  agents?: unknown[] | undefined;
  boot_params?: JsonObject | undefined;
  boot_platform?: string | undefined;
  comments?: string | undefined;
  datacenter?: string | undefined;
  default_console?: string | undefined;
  next_reboot?: string | undefined;
  nics?: unknown[] | undefined;
  overprovision_ratios?: JsonObject | undefined;
  rack_identifier?: string | undefined;
  reservation_ratio?: number | undefined;
  reserved?: boolean | undefined;
  reservoir?: boolean | undefined;
  serial?: string | undefined;
  setting_up?: boolean | undefined;
  setup?: boolean | undefined;
  traits?: JsonObject | undefined;
  transitional_status?: string | undefined;
}

/** What the control plane itself changes. */
export type ServerChange = ServerUpdate & { hostname?: string; resetting?: boolean };

/** A value that the rules of its field do not allow; 409 as in Triton's CNAPI. */
export class InvalidServerUpdateError extends CnapiError {
  constructor(field: string, message: string) {
    super('InvalidArgument', 409, message, { errors: [{ field, code: 'Invalid', message }] });
  }
}

const RATIO_KEYS = ['cpu', 'ram', 'disk', 'io', 'net'];
/**
 * Accepted and not stored: the ratios have long belonged to the allocator, and nics never had an
 * effect.
 */
const NOT_STORED = new Set(['nics', 'overprovision_ratios']);

/**
 * @throws InvalidServerUpdateError naming the field; InvalidArgumentError for boot parameters that
 * are too long
 */
export function checkUpdate(update: ServerUpdate): void {
  if (update.next_reboot !== undefined && update.next_reboot !== '') checkNextReboot(update.next_reboot);
  if (update.boot_params !== undefined) checkArguments('boot_params', update.boot_params);
  if (update.overprovision_ratios !== undefined) checkRatios(update.overprovision_ratios);
  if (update.agents !== undefined && !update.agents.every(isJsonObject)) {
    throw new InvalidServerUpdateError('agents', 'agents must be objects with name, version, image_uuid and uuid');
  }
  if (update.transitional_status !== undefined && !['', 'rebooting'].includes(update.transitional_status)) {
    throw new InvalidServerUpdateError('transitional_status', "transitional_status can only be 'rebooting' or empty");
  }
}

/**
 * The document after a checked update. `epoch` is the roster's present one: a transition ends with
 * the next session.
 */
export function applyUpdate(before: ServerDocument, update: ServerChange, epoch: number | null): ServerDocument {
  const given = Object.entries(update).filter(([key, value]) => value !== undefined && !NOT_STORED.has(key));
  const after = { ...before, ...Object.fromEntries(given) } as ServerDocument;
  if (update.next_reboot === '') delete after.next_reboot;
  if (update.resetting === false || update.setup === true) delete after.resetting;
  if (update.transitional_status === undefined) return after;
  delete after.transitional_epoch;
  if (update.transitional_status === '') delete after.transitional_status;
  else if (epoch !== null) after.transitional_epoch = epoch;
  return after;
}

function checkNextReboot(text: string): void {
  const time = new Date(text).getTime();
  if (Number.isNaN(time) || new Date(time).toISOString() !== text) {
    throw new InvalidServerUpdateError('next_reboot', 'Invalid date for next_reboot; not an ISO date format');
  }
}

function checkRatios(ratios: JsonObject): void {
  for (const [key, value] of Object.entries(ratios)) {
    if (!RATIO_KEYS.includes(key)) throw invalidRatio(`Invalid key ${key.slice(0, 100)}`);
    if (typeof value !== 'number') throw invalidRatio(`Invalid type for ${key}`);
    if (!(value >= 0)) throw invalidRatio(`Invalid value for ${key}`);
  }
}

function invalidRatio(message: string): InvalidServerUpdateError {
  return new InvalidServerUpdateError('overprovision_ratios', message);
}
