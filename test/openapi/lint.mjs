/**
 * `node lint.mjs FILE`: prints a JSON list of what redocly's recommended rules find in a document.
 */
import { createConfig, lint } from '@redocly/openapi-core';

const config = await createConfig({ extends: ['recommended'] });
const problems = await lint({ ref: process.argv[2], config });
const found = problems.map(({ ruleId, severity, message, location }) => ({
  ruleId,
  severity,
  message,
  at: location.map(({ pointer }) => pointer),
}));
process.stdout.write(JSON.stringify(found));
