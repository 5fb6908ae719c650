/** Asks for a server's name before a command ends what is on it, or its record. */
import { createInterface } from 'node:readline/promises';
import type { Context } from '../invocation/context.ts';
import { RefusedError, UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

export const YES = ['-y, --yes', "do not ask for the server's name; needed where no terminal can ask"] as const;

interface Confirmation {
  /** What the command does, as `resets`. */
  does: string;
  /** The hostname, or the uuid of a server without one. */
  name: string;
  yes: boolean | undefined;
}

/**
 * Resolves when the user has typed the name, or has given --yes.
 * @throws UsageError, RefusedError
 */
export async function confirmServer(
  { streams }: Pick<Context, 'streams'>,
  { does, name, yes }: Confirmation,
): Promise<void> {
  if (yes === true) return;
  const { stdin, stderr } = streams;
  if (stdin?.isTTY !== true)
    throw new UsageError(`This command ${does} ${escapeControls(name)}: confirm that with --yes`);
  const asking = createInterface({ input: stdin, output: stderr });
  const closed = Promise.withResolvers<string>();
  asking.once('close', () => closed.resolve(''));
  const question = `This ${does} ${escapeControls(name)}. Type its name to go on: `;
  const answer = await Promise.race([asking.question(question), closed.promise]);
  asking.close();
  if (answer.trim() !== name) throw new RefusedError(`The name was not typed; ${escapeControls(name)} is unchanged`);
}
