/** Generates docs/configuration.md from the schema that parses configurations. */
import { configKeys } from '../../lib/config.ts';

const HEAD = `# Configuration

Of one instance: \`node server.ts --config FILE\`. FILE is a JSON object with these keys; environment variables go over it. An unknown key, in
either, is refused by name; values that do not go together end the start with a line that says which. \`cnapi doctor --config FILE\` checks them, and what
they name.

This page is made from the schema (\`npm run docs:config\`); how the parts are used is in [operating](operating.md). Times are in milliseconds. An instance
reads its configuration at the start; certificates alone are read again while it runs.

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
  return String(value);
}
