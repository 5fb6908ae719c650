/** A listener that requires tokens, and tokens for it. */
import type { Test } from 'tap';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import type { Role } from '../../../lib/protocol/api/contract/roles.ts';
import { type ApiOptions, startApi } from './support.ts';

export async function startWithTokens(t: Test, config: ApiOptions['config'] = {}, options: ApiOptions = {}) {
  const api = await startApi(t, { ...options, config: { access: 'tokens', ...config } });
  const tokens = new Tokens({ database: api.database.database, random: systemRandom });
  const as = async (role: Role, serverUuid?: string) => {
    const made = await tokens.create({
      name: `the ${role} ${systemRandom.uuid()}`,
      role,
      createdBy: 'the test',
      serverUuid,
    });
    return { ...made, headers: { authorization: `Bearer ${made.token}` } };
  };
  const audit = async (query = '') => {
    const { headers } = await as('admin');
    return (await api.call('GET', `/audit?${query}`, undefined, headers)).body as Record<string, unknown>[];
  };
  return { ...api, tokens, as, audit };
}
