/** The times after which agents and instances count as silent, dead or gone. Pure. */
import { milliseconds } from '../../platform/setting-rules.ts';

export const rosterSettings = {
  heartbeatMs: milliseconds.default(1000).describe('Time between two heartbeats of an agent'),
  silenceMs: milliseconds
    .default(2000)
    .describe(
      'After this time without a frame from an agent, its instance counts it as silent; at least two heartbeats',
    ),
  serverSilenceMs: milliseconds
    .default(3000)
    .describe(
      'After this time without a frame from its instance, an agent looks for another one; at least two heartbeats',
    ),
  checkMs: milliseconds
    .default(250)
    .describe('The period of the tick that counts silence, leases and grace periods; at most a quarter of `silenceMs`'),
  beatMs: milliseconds.default(1000).describe('Time between two beats of an instance, which it writes to the database'),
  leaseMs: milliseconds
    .default(5000)
    .describe('An instance that does not beat for this time counts as dead; at least three beats'),
  ownerlessGraceMs: milliseconds
    .default(5000)
    .describe(
      'How long the agents of a dead instance may take to connect to another one before their servers become `unknown`; longer while agents wait that were told to return later, by two minutes and `reconnectMaxMs` at most',
    ),
  startGraceMs: milliseconds
    .default(18_000)
    .describe(
      'For this time after its start, a stall or a database outage, an instance marks no server `unknown` that it never held; at least `reconnectMaxMs`',
    ),
  slowPollMs: milliseconds.default(5000).describe('How often an instance reads what it may have missed on the bus'),
  slowPollNoBusMs: milliseconds.default(1000).describe('The same while the bus does not work'),
  reconnectMaxMs: milliseconds.default(8000).describe('Longest pause of an agent between two attempts to connect'),
  drainAgentsMs: milliseconds
    .default(30_000)
    .describe('How long agents may take to move to other instances, from the start of a drain'),
  drainWaitsMs: milliseconds
    .default(60_000)
    .describe(
      'When remaining waits are answered, from the start of a drain; at least `drainAgentsMs`. The process ends at the latest 15 s later: if you raise this, raise `TimeoutStopSec`, `timeout_seconds` or `--stop-timeout` (90 s) too',
    ),
  balanceQuietMs: milliseconds
    .default(30_000)
    .describe(
      'For this time after an instance started, left or began to drain, agents are not balanced; nor are they while an instance has not beaten for half of `leaseMs`',
    ),
};
