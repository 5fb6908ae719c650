/**
 * Reads the answers of `machine_info`. Agents of Triton answer with the text that vmadm prints,
 * which a task keeps as `{value: text}`; agents of this project answer with an object. Pure.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { isJsonObject, type JsonObject, parseBoundedJson } from '../../../protocol/json/bounded-json.ts';
import { MAX_JSON_DEPTH } from '../../../protocol/json/storable.ts';
import { MAX_FRAME_VALUES } from '../../../protocol/limits.ts';

/** An error with the status and the text of Triton's CNAPI. */
class UnreadableInfoError extends CnapiError {
  constructor(cause?: unknown) {
    super('InternalError', 500, 'failed to parse JSON response from vm.info', { cause });
  }
}

/** @throws UnreadableInfoError */
export function parseVmInfo(result: JsonObject): JsonObject {
  const { value: text } = result;
  const info = typeof text === 'string' ? parse(text) : result;
  if (!isJsonObject(info)) throw new UnreadableInfoError();
  return info;
}

/** Where a VNC client can connect. @throws UnreadableInfoError */
export function vncOf({ vnc }: JsonObject): { host: string; port: unknown } {
  if (!isJsonObject(vnc) || typeof vnc.host !== 'string') throw new UnreadableInfoError();
  return { host: vnc.host, port: vnc.port };
}

function parse(text: string): unknown {
  try {
    return parseBoundedJson(text, { maxValues: MAX_FRAME_VALUES, maxDepth: MAX_JSON_DEPTH });
  } catch (error) {
    throw new UnreadableInfoError(error);
  }
}
