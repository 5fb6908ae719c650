/** All parts, in the order in which they are run. */
import { agentPart } from './agent.ts';
import { costPart } from './cost.ts';
import { dnsPart } from './dns.ts';
import { linkPart } from './link.ts';
import type { Part } from './part.ts';
import { codecPart, configPart, filterPart } from './pure.ts';
import { restPart } from './rest.ts';

export const parts: readonly Part[] = [
  restPart,
  linkPart,
  costPart,
  agentPart,
  dnsPart,
  codecPart,
  filterPart,
  configPart,
];
