/**
 * Limits and default periods of the agent link (docs/agent-protocol.md), in milliseconds and bytes.
 */

/** The link protocol version of this code, and the oldest version that it still understands. */
export const PROTOCOL_VERSION = 1;
export const OLDEST_PROTOCOL_VERSION = 1;

export const MAX_FRAME_BYTES = 8 * 1024 * 1024;
/**
 * Maximum number of JSON values in a frame, including names of members, and their maximum depth.
 * Both ends refuse a larger frame before they parse it. A request body, and so the params of a
 * task, has lower limits.
 */
export const MAX_FRAME_VALUES = 250_000;
export const MAX_FRAME_DEPTH = 256;

export interface FrameLimits {
  bytes: number;
  values: number;
}

/** The result of a task. Its text may fill the frame; the agent drops a result with more values. */
export const MAX_RESULT_VALUES = 20_000;
/**
 * The frames of an agent that may be large: the instance stores them whole. A real sysinfo is tens
 * of KB. The status of a machine with 5,000 VMs of 12 fields each is 2 MB with 130,000 values.
 */
export const AGENT_FRAME_LIMITS: Readonly<Record<string, FrameLimits>> = {
  sysinfo: { bytes: 1024 * 1024, values: 50_000 },
  status: { bytes: 4 * 1024 * 1024, values: 200_000 },
  task_end: { bytes: MAX_FRAME_BYTES, values: MAX_RESULT_VALUES },
};
/** All other frames of an agent. The largest is an inventory of MAX_INVENTORY_TASKS. */
export const OTHER_AGENT_FRAME_LIMITS: FrameLimits = { bytes: MAX_FRAME_BYTES, values: 40_000 };
/** Maximum size of a frame before the greeting is complete. */
export const MAX_GREETING_BYTES = 64 * 1024;
/**
 * Maximum number of WebSocket frames before the greeting is complete, with pings, pongs and
 * fragments.
 */
export const MAX_GREETING_FRAMES = 8;
/** Maximum number of tasks in an agent's journal and in an inventory. */
export const MAX_INVENTORY_TASKS = 5_000;
/**
 * Maximum length of one live output event, in UTF-16 units; the agent splits its streams into
 * pieces of this length.
 */
export const MAX_OUTPUT_CHUNK = 16 * 1024;
/** Maximum of arguments, and of environment variables, of a command. */
export const MAX_COMMAND_ARGS = 1_000;
export const MAX_COMMAND_VARIABLES = 1_000;
/** Maximum timeout in a task frame; an agent rejects a frame with a longer one. */
export const MAX_TASK_TIMEOUT_MS = 24 * 3_600_000;
/** Maximum of the nodes of a push job. */
export const MAX_PUSH_NODES = 20_000;
/** Maximum length of a push job's command, in UTF-16 units. */
export const MAX_PUSH_COMMAND_CHARS = 32_768;
/**
 * Maximum of the environment of a push job, names and values together, in bytes of UTF-8. It is
 * sent to every node and kept with the job.
 */
export const MAX_PUSH_ENV_BYTES = 64 * 1024;
/** Maximum size of the file that a push job brings; Chef's limit. */
export const MAX_PUSH_FILE_BYTES = 100_000;
/** Maximum lengths of what names the queue of a ticket, in bytes of UTF-8. */
export const MAX_TICKET_SCOPE_BYTES = 256;
export const MAX_TICKET_ID_BYTES = 1_024;
/** Maximum time that a goaway may give an agent to leave. */
export const MAX_GOAWAY_MS = 3_600_000;
/** Kept bytes of each output stream: the first half and the last half of this number. */
export const MAX_OUTPUT_BYTES = 1024 * 1024;

/**
 * A hello is refused when its epoch is more than this above the row's: it would use up the counter.
 */
export const MAX_EPOCH_LEAD = 2 ** 32;

export interface LinkTimes {
  /** Period of the agent's heartbeats. */
  heartbeatMs: number;
  /** An instance that has received no byte for this long declares the agent silent. */
  silenceMs: number;
  /** An agent that has received no byte for this long leaves its instance. */
  serverSilenceMs: number;
  /** Maximum pause between two connection attempts of an agent. */
  reconnectMaxMs: number;
}

export const DEFAULT_LINK_TIMES: LinkTimes = {
  heartbeatMs: 1000,
  silenceMs: 2000,
  serverSilenceMs: 3000,
  reconnectMaxMs: 8000,
};

/**
 * Time from the upgrade to the hello; for the upgrade (agent's view); from the hello to the welcome
 * (agent's view); from the welcome to the inventory.
 */
export const HELLO_WITHIN_MS = 2000;
export const UPGRADE_WITHIN_MS = 2000;
export const WELCOME_WITHIN_MS = 5000;
export const INVENTORY_WITHIN_MS = 2000;
/**
 * The longest time that an instance asks an agent to wait before it returns, and that an agent does
 * not use an address. With 15,000 waiting agents this is 125 refusals per second and instance,
 * which an instance hardly notices. With 30 s it was 500, and refusals alone kept the instances
 * busy.
 */
export const MAX_RETURN_MS = 120_000;
