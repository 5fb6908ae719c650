/** The agent's version: of the package it comes in. */
import { readFileSync } from 'node:fs';

export const AGENT_VERSION: string = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;
