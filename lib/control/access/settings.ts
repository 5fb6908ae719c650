/** The settings of access: who needs a token, and what callers without one may do. Pure. */
import { z } from 'zod';
import { reasonNotANetwork } from '../../platform/network/networks.ts';
import { whole } from '../../platform/setting-rules.ts';
import type { TrustedNetwork } from './trusted-networks.ts';

const networkRole = z.enum(['reader', 'operator', 'agent'], 'is not reader, operator or agent');
const networkRoles = z.union([networkRole.transform((role) => [role]), z.array(networkRole).min(1)]);
/**
 * Written in a file as `{"10.0.0.0/24": "operator", "10.0.1.0/24": ["reader", "agent"]}`, and in
 * the environment as `10.0.0.0/24=operator,10.0.1.0/24=reader+agent`.
 */
const trustedNetworks = z
  .preprocess(parseNetworks, z.record(z.string(), networkRoles))
  .superRefine((networks, context) => {
    for (const text of Object.keys(networks)) {
      const reason = reasonNotANetwork(text);
      if (reason !== undefined) context.addIssue({ code: 'custom', message: reason, path: [text] });
    }
  })
  .transform((networks): TrustedNetwork[] => Object.entries(networks).map(([text, roles]) => ({ text, roles })));

export const accessSettings = {
  access: z
    .enum(['open', 'tokens'], 'is neither open nor tokens')
    .default('open')
    .describe(
      '`tokens`: callers and agents need a token. `open`: nobody needs one, and the instance listens on loopback only ([access](access.md))',
    ),
  trustedNetworks: trustedNetworks
    .default([])
    .describe(
      'Callers and agents that connect from these networks without a token have this role: `{"10.0.0.0/24": "reader"}`, in the environment `10.0.0.0/24=reader`',
    ),
  newServersPerHour: whole(0, 1_000_000)
    .default(20_000)
    .describe(
      'New servers per hour that one agent token without `--server` (or one address without a token) may create on this instance, with `tokens`; 0 means no limit',
    ),
  failedAuthenticationsPerMinute: whole(0, 1_000_000)
    .default(30)
    .describe('Failed authentications per minute of one address, with `tokens`; 0 means no limit'),
};

/** Any other text is returned unchanged, so that validation refuses it. */
function parseNetworks(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  const pairs = value.split(',').map((pair) => pair.split('='));
  if (pairs.some((pair) => pair.length !== 2)) return value;
  return Object.fromEntries(pairs.map(([network = '', roles = '']) => [network.trim(), roles.trim().split('+')]));
}
