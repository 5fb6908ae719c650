/**
 * The timing of one session: how long the instance has been silent, and when the next heartbeat is
 * due. Owned by the link's driver, which asks at each tick; it has no timer of its own.
 *
 *     heard ── nothing for serverSilenceMs ──► silent ── nothing for as long again ──► dead
 *       ▲──────────────────── any byte ───────────┘
 */
import type { WelcomeFrame } from '../../protocol/link/frames.ts';
import type { LinkSocket } from './link-socket.ts';
import { limitsOf, type SessionLimits } from './link-times.ts';

export interface LinkWatch extends SessionLimits {
  number: number;
  socket: LinkSocket;
  peerVersion: number;
  /** Bytes have arrived since the last tick. */
  hasReceived: boolean;
  silentMs: number;
  nextHeartbeatAt: number;
  /** The instance has answered a heartbeat. */
  steady: boolean;
}

type SilenceChange = 'silent' | 'heard' | 'dead';

export function beginWatch(
  number: number,
  { socket, welcome, now }: { socket: LinkSocket; welcome: WelcomeFrame; now: number },
): LinkWatch {
  const limits = limitsOf(welcome);
  const nextHeartbeatAt = now + limits.heartbeatMs;
  return {
    ...limits,
    number,
    socket,
    peerVersion: welcome.version,
    hasReceived: false,
    silentMs: 0,
    nextHeartbeatAt,
    steady: false,
  };
}

/**
 * What has changed. `healthyMs` is the part of the time since the last call in which this process
 * ran.
 */
export function checkSilence(watched: LinkWatch, healthyMs: number): SilenceChange | undefined {
  const { serverSilenceMs, silentMs } = watched;
  if (watched.hasReceived) {
    watched.hasReceived = false;
    watched.silentMs = 0;
    return silentMs >= serverSilenceMs ? 'heard' : undefined;
  }
  watched.silentMs += healthyMs;
  if (watched.silentMs >= 2 * serverSilenceMs) return 'dead';
  return silentMs < serverSilenceMs && watched.silentMs >= serverSilenceMs ? 'silent' : undefined;
}

/**
 * True when a heartbeat is due. The next one is counted from this one; after a pause, missed ones
 * are not sent.
 */
export function isHeartbeatDue(watched: LinkWatch, now: number): boolean {
  const { heartbeatMs, nextHeartbeatAt } = watched;
  if (now < nextHeartbeatAt) return false;
  watched.nextHeartbeatAt = Math.max(nextHeartbeatAt + heartbeatMs, now + heartbeatMs / 2);
  return true;
}
