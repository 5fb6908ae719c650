/** The agent's version, which is the version of its package. */
import { readFileSync } from 'node:fs';

export const AGENT_VERSION: string = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
