import { parseOnly } from '../../lib/cli/invocation/command-runner.ts';
import { createProgram } from '../../lib/cli/program.ts';
import { allContracts } from '../../lib/protocol/api/all-contracts.ts';
import { cliPage } from './cli.ts';
import { configurationPage } from './configuration.ts';
import { restApiPage } from './rest-api.ts';

/** The pages of docs/ that are generated, by their file names. */
export function pages(): { file: string; text: string }[] {
  return [
    { file: 'rest-api.md', text: restApiPage(allContracts) },
    { file: 'cli.md', text: cliPage(createProgram(parseOnly)) },
    { file: 'configuration.md', text: configurationPage() },
  ];
}
