/** The settings of legacy agents: where they may be called, and when they count as silent. Pure. */
import { z } from 'zod';
import { reasonNotANetwork } from '../../platform/network/networks.ts';
import { commaList, milliseconds } from '../../platform/setting-rules.ts';

const network = z.string().superRefine((text, context) => {
  const reason = reasonNotANetwork(text);
  if (reason !== undefined) context.addIssue({ code: 'custom', message: reason });
});

export const legacySettings = {
  agentNetworks: commaList(z.array(network))
    .default([])
    .describe(
      'Networks in which legacy agents may be sent tasks: `["10.0.0.0/24"]`, in the environment `10.0.0.0/24,10.0.1.0/24`. Also allowed are the address from which an agent posts and the networks with the role agent in `trustedNetworks`',
    ),
  legacyHeartbeatLifetimeMs: milliseconds
    .default(11_000)
    .describe('How long a heartbeat of a legacy agent (one every 5 s) proves that its server is up'),
  legacyHeartbeatRecordMs: milliseconds
    .default(4000)
    .describe(
      'How often an instance records which legacy agents posted heartbeats to it; at most half of `legacyHeartbeatLifetimeMs`',
    ),
  legacyGraceMs: milliseconds
    .default(1000)
    .describe(
      'A server of a legacy agent becomes `unknown` when no instance received a heartbeat for the sum of these three times; at least two `checkMs`',
    ),
};

interface NetworksOfAgents {
  agentNetworks: readonly string[];
  trustedNetworks: readonly { text: string; roles: readonly string[] }[];
}

/** Lists the networks in which agents may be called, wherever they connected from. */
export function callableNetworks({ agentNetworks, trustedNetworks }: NetworksOfAgents): string[] {
  const trusted = trustedNetworks.filter(({ roles }) => roles.includes('agent')).map(({ text }) => text);
  return [...agentNetworks, ...trusted];
}
