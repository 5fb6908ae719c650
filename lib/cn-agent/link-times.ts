/** What a welcome says of periods and sizes, within what an agent can live with. Pure; used by link.ts and its driver. */
import type { WelcomeFrame } from '../wire/frames.ts';
import { type LinkTimes, MAX_FRAME_BYTES } from '../wire/limits.ts';

export type SessionLimits = Pick<LinkTimes, 'heartbeatMs' | 'serverSilenceMs'> & { maxFrameBytes: number };

/** An instance speaks when it is spoken to, so its silence begins no earlier than at the second heartbeat. */
export function limitsOf(welcome: WelcomeFrame): SessionLimits {
  const heartbeatMs = within(100, welcome.heartbeatMs, 60_000);
  const serverSilenceMs = within(Math.max(500, 2 * heartbeatMs), welcome.serverSilenceMs, 600_000);
  return { heartbeatMs, serverSilenceMs, maxFrameBytes: Math.min(welcome.maxFrameBytes, MAX_FRAME_BYTES) };
}

export const reconnectMaxMsOf = ({ reconnectMaxMs }: WelcomeFrame): number => within(1000, reconnectMaxMs, 60_000);

const within = (min: number, value: number, max: number): number => Math.min(Math.max(value, min), max);
