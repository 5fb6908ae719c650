/** Bounds and default periods of the agent link (docs/agent-protocol.md). Milliseconds and bytes. */

/** Version of the link protocol spoken by this code, and the oldest it still understands. */
export const PROTOCOL_VERSION = 1;
export const OLDEST_PROTOCOL_VERSION = 1;

export const MAX_FRAME_BYTES = 8 * 1024 * 1024;
/** Largest frame before the greeting is done. */
export const MAX_GREETING_BYTES = 64 * 1024;
/** Most tasks an agent keeps in its journal and an inventory may name. */
export const MAX_INVENTORY_TASKS = 5_000;
/** Text of one live output event; the agent cuts its streams into pieces of at most this many UTF-16 units. */
export const MAX_OUTPUT_CHUNK = 16 * 1024;
/** Longest time that a task frame may give; an agent does not understand a frame with a longer one. */
export const MAX_TASK_TIMEOUT_MS = 24 * 3_600_000;
/** Longest time that an agent may be given to be gone. */
export const MAX_GOAWAY_MS = 3_600_000;
/** Kept of each output stream: the first and the last half of this many bytes. */
export const MAX_OUTPUT_BYTES = 1024 * 1024;

/** A hello whose epoch lies further than this above the row's is refused: it would use the counter up. */
export const MAX_EPOCH_LEAD = 2 ** 32;

export interface LinkTimes {
  /** The agent's heartbeat. */
  heartbeatMs: number;
  /** An instance that heard no byte for this long declares the agent silent. */
  silenceMs: number;
  /** An agent that heard no byte for this long leaves its instance. */
  serverSilenceMs: number;
  /** Longest pause between two attempts of an agent to connect. */
  reconnectMaxMs: number;
}

export const DEFAULT_LINK_TIMES: LinkTimes = {
  heartbeatMs: 1000,
  silenceMs: 2000,
  serverSilenceMs: 3000,
  reconnectMaxMs: 8000,
};

/** From the upgrade to the hello, from the hello to the welcome (agent's view), from the welcome to the inventory. */
export const HELLO_WITHIN_MS = 2000;
export const UPGRADE_WITHIN_MS = 2000;
export const WELCOME_WITHIN_MS = 5000;
export const INVENTORY_WITHIN_MS = 2000;
