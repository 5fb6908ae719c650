/**
 * What `POST /servers/:server_uuid/recovery-config` checks before there is a task, in the order of
 * Triton's CNAPI; each failure is 412. No message has a value that may be secret. Pure.
 */
import { isUuid } from '../../../protocol/api/contract/rules.ts';
import { isJsonObject, type JsonObject } from '../../../protocol/json/bounded-json.ts';
import { deriveRecoveryUuid, MAX_RECOVERY_TOKEN_CHARS, MAX_TEMPLATE_CHARS } from '../../../protocol/recovery.ts';
import { PreconditionFailedError } from '../../request-errors.ts';
import { ageOfCnAgent } from '../../servers/cn-agent-version.ts';

/** The parameters of the task. */
interface RecoveryTask extends JsonObject {
  action: 'stage' | 'activate';
  recovery_uuid: string;
  secret_params: string[];
}

/** The first agent of Triton that knows the task. */
const MIN_AGENT = '2.13.0';
const DIGEST = /^[0-9a-f]{32,}$/i;

/** @throws PreconditionFailedError */
export function parseRecoveryRequest(params: Readonly<Record<string, unknown>>): RecoveryTask {
  const recoveryUuid = textOf(params, 'recovery_uuid');
  const pivtoken = textOf(params, 'pivtoken');
  const action = textOf(params, 'action');
  if (!isUuid(recoveryUuid)) throw new PreconditionFailedError('recovery_uuid is not a UUID');
  if (action !== 'stage' && action !== 'activate')
    throw new PreconditionFailedError("action is neither 'stage' nor 'activate'");
  const common = { action, recovery_uuid: recoveryUuid.toLowerCase(), pivtoken } as const;
  if (action === 'activate') return { ...common, secret_params: ['/pivtoken'] };
  const template = textOf(params, 'template', MAX_TEMPLATE_CHARS);
  const token = textOf(params, 'token');
  return { ...common, template, token, secret_params: ['/pivtoken', '/template', '/token'] };
}

/** `sysinfo`: at least what it says of the zpool. @throws PreconditionFailedError */
export function checkRecoverable(
  { action, recovery_uuid }: Pick<RecoveryTask, 'action' | 'recovery_uuid'>,
  { agents, sysinfo }: { agents: readonly JsonObject[]; sysinfo: JsonObject },
): void {
  if (ageOfCnAgent(agents, MIN_AGENT) !== 'new enough')
    throw new PreconditionFailedError(`The cn-agent of the server is older than ${MIN_AGENT}`);
  if (!/^true$/i.test(String(sysinfo['Zpool Encrypted'])))
    throw new PreconditionFailedError('The zpool of the server is not encrypted');
  const found = sysinfo['Zpool Recovery'];
  const { active, staged } = isJsonObject(found) ? found : {};
  if (isOf(active, recovery_uuid))
    throw new PreconditionFailedError(`Recovery configuration ${recovery_uuid} is active already`);
  if (action === 'activate' && !isOf(staged, recovery_uuid))
    throw new PreconditionFailedError(`Recovery configuration ${recovery_uuid} is not staged`);
}

const isOf = (digest: unknown, uuid: string): boolean =>
  typeof digest === 'string' && DIGEST.test(digest) && deriveRecoveryUuid(digest.toLowerCase()) === uuid;

function textOf(params: Readonly<Record<string, unknown>>, name: string, maxChars = MAX_RECOVERY_TOKEN_CHARS): string {
  const value = params[name];
  if (value === undefined || value === null || value === '') throw new PreconditionFailedError(`${name} is missing`);
  if (typeof value !== 'string') throw new PreconditionFailedError(`${name} is not a string`);
  if (value.length > maxChars) throw new PreconditionFailedError(`${name} is longer than ${maxChars} characters`);
  return value;
}
