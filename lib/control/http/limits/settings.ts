/** The settings that limit what one caller may use of an instance. Pure. */
import { whole } from '../../../platform/setting-rules.ts';

export const limitSettings = {
  requestsPerSecond: whole(0, 1_000_000)
    .default(500)
    .describe('Requests per second of one address (with IPv6: one /64), with `tokens`; 0 means no limit'),
  connectionsPerSource: whole(0, 100_000)
    .default(500)
    .describe('Connections of one address, with `tokens`; 0 means no limit'),
  handshakesPerSecond: whole(0, 100_000)
    .default(200)
    .describe('TLS handshakes per second of one address (with IPv6: one /64), with `tokens`; 0 means no limit'),
  answerMemoryMiB: whole(1, 65_536)
    .default(128)
    .describe('Memory for answers that are being read from the database or sent; beyond it 503 `AnswerMemoryFull`'),
  answerMemoryPerCallerMiB: whole(0, 65_536)
    .default(32)
    .describe(
      'The part of that memory that one token or signer (or one address without) may use, with `tokens`; beyond it 429 `AnswerShareFull`; 0 means no limit',
    ),
  eventStreamsPerCaller: whole(0, 100_000)
    .default(100)
    .describe(
      'Event streams of one token or signer (or one address without) on this instance, with `tokens`; 0 means no limit',
    ),
  waitsPerCaller: whole(0, 100_000)
    .default(1000)
    .describe(
      'Waits for tasks and tickets of one token or signer (or one address without) on this instance, with `tokens`; 0 means no limit',
    ),
  logLinesPerSource: whole(0, 1_000_000)
    .default(200)
    .describe(
      'Log lines per second about what one address does: its requests, frames and sessions; one line counts the others; 0 means no limit',
    ),
};
