/** Where the agent of a node connects to, in the form of Chef's configuration of a client. */
import { CnapiError } from '../../../platform/errors.ts';
import type { ChefConfiguration } from '../../../protocol/api/chef.ts';
import type { Organization } from '../../../protocol/api/documents/organizations.ts';
import type { Organizations } from '../../organizations/organizations.ts';
import { checkMayAct, type Requestor } from '../../organizations/requestor.ts';
import { checkAccept } from './negotiation.ts';

export interface NodeConfigDeps {
  organizations: Pick<Organizations, 'nodesOf'>;
  sessions: { run(): string };
  config: { heartbeatMs: number; silenceMs: number };
}

interface Asked {
  requestor: Requestor & { organization: Organization };
  node: string;
  baseUrl: string;
  accept: string | undefined;
}

const LIFETIME_S = 3600;

/**
 * A client may ask for its own node only; users must be readers. @throws NoAccessError, the
 * refusals
 */
export async function nodeConfig(
  { organizations, sessions, config }: NodeConfigDeps,
  { requestor, node: name, baseUrl, accept }: Asked,
): Promise<ChefConfiguration> {
  const { organization, kind } = requestor;
  if (kind !== 'client') checkMayAct(requestor, 'read');
  else if (requestor.name !== name) throw new CnapiError('Forbidden', 403, 'Client and node name must match');
  checkAccept(accept, 'application/json');
  const node = (await organizations.nodesOf(organization, [name])).get(name);
  if (node === undefined || typeof node === 'string') {
    const reason = node === 'ambiguous' ? 'has several servers with the hostname' : 'has no node';
    throw new CnapiError('ResourceNotFound', 404, `organization '${organization.name}' ${reason} '${name}'`);
  }
  const link = `${baseUrl.replace(/^http/, 'ws')}/agents/${node.serverUuid}/link`;
  return {
    type: 'config',
    host: new URL(baseUrl).hostname,
    node: name,
    organization: organization.name,
    push_jobs: {
      heartbeat: {
        out_addr: link,
        command_addr: link,
        interval: config.heartbeatMs / 1000,
        offline_threshold: Math.round(config.silenceMs / config.heartbeatMs),
        online_threshold: 1,
      },
    },
    lifetime: LIFETIME_S,
    incarnation_id: sessions.run(),
  };
}
