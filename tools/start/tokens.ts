/**
 * The tokens of `npm start`, each in a file that only its user can read: one for people and
 * programs of that user, one for the agents that it runs. They stay the same at each start, as long
 * as the database knows them.
 */
import path from 'node:path';
import { parseConfig } from '../../lib/control/config.ts';
import { read, writePrivate } from './persisted-settings.ts';

export interface TokenFiles {
  operator: string;
  agents: string;
}

export function tokenFiles(data: string): TokenFiles {
  return { operator: path.join(data, 'config', 'operator.token'), agents: path.join(data, 'config', 'agents.token') };
}

/** Creates tokens that are missing or no longer valid. @throws the database's errors */
export async function keepTokens(data: string, databaseUrl: string): Promise<TokenFiles> {
  const files = tokenFiles(data);
  // Imported only here, because it loads half of an instance's code, which `--stop` and similar do
  // not need.
  const { keepTokensDirectly } = await import('../../lib/control/access/direct-token.ts');
  const wanted = [
    { file: files.operator, request: { name: 'npm start', role: 'operator' as const } },
    { file: files.agents, request: { name: 'npm start agents', role: 'agent' as const } },
  ];
  const asked = wanted.map(({ file, request }) => ({ text: read(file), request }));
  const texts = await keepTokensDirectly(parseConfig({ databaseUrl }), asked);
  for (const [index, { file }] of wanted.entries()) {
    const text = texts[index];
    if (text !== undefined && text !== read(file)) writePrivate(file, `${text}\n`);
  }
  return files;
}

/** The header of the supervisor's own requests. */
export function authorizationFrom(file: string | undefined): Record<string, string> {
  const token = file === undefined ? undefined : read(file);
  return token === undefined ? {} : { authorization: `Bearer ${token}` };
}
