/** Generates docs/configuration.md from the schema that parses configurations. */
import { configKeys } from '../../lib/control/config.ts';

const HEAD = `# Configuration

An instance starts with \`node server.ts --config FILE\` (Node 22.18 or newer). FILE is a JSON object
with the keys below; environment variables override it. An unknown key in either is refused by name.
If values contradict each other, the start ends with a line that names them.
\`cnapi doctor --config FILE\` checks the values and what they refer to.

This page is generated from the schema (\`npm run docs\`). How to use the features:
[operating](operating.md). Times are in milliseconds. An instance reads its configuration at its
start; only certificates are read again while it runs.

| Key | Environment | Default | |
|---|---|---|---|
`;

export function configurationPage(): string {
  const rows = configKeys().map(({ key, variable, description, ...rest }) => {
    const about = `${description.replaceAll('|', '\\|')}.`;
    return `| \`${key}\` | \`${variable}\` | ${defaultText(rest)} | ${about} |\n`;
  });
  return HEAD + rows.join('');
}

function defaultText({ default: value, isRequired }: { default: unknown; isRequired: boolean }): string {
  if (isRequired) return 'required';
  if (value === undefined || (Array.isArray(value) && value.length === 0)) return 'none';
  return inEnvironment(value).replaceAll('|', '\\|');
}

/** The value in the form of an environment variable. */
function inEnvironment(value: unknown): string {
  if (Array.isArray(value)) return value.map((one) => (Array.isArray(one) ? one.join('|') : String(one))).join(', ');
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value)
    .map(([name, one]) => `${name}=${one}`)
    .join(',');
}
