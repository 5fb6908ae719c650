/**
 * Periods and sizes of a welcome, limited to what an agent can work with. Pure; used by the link.
 */

import { type LinkTimes, MAX_FRAME_BYTES } from '../../protocol/limits.ts';
import type { WelcomeFrame } from '../../protocol/link/frames.ts';

export type SessionLimits = Pick<LinkTimes, 'heartbeatMs' | 'serverSilenceMs'> & { maxFrameBytes: number };

/** An instance only answers heartbeats, so its silence lasts at least two heartbeat periods. */
export function limitsOf(welcome: WelcomeFrame): SessionLimits {
  const heartbeatMs = within(100, welcome.heartbeatMs, 60_000);
  const serverSilenceMs = within(Math.max(500, 2 * heartbeatMs), welcome.serverSilenceMs, 600_000);
  return { heartbeatMs, serverSilenceMs, maxFrameBytes: Math.min(welcome.maxFrameBytes, MAX_FRAME_BYTES) };
}

export const reconnectMaxMsOf = ({ reconnectMaxMs }: WelcomeFrame): number => within(1000, reconnectMaxMs, 60_000);

const within = (min: number, value: number, max: number): number => Math.min(Math.max(value, min), max);
