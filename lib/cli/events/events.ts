/** `cnapi events`: shows changes as they happen. */
import { Command } from 'commander';
import { documentKinds } from '../../protocol/api/all-contracts.ts';
import { EVENT_KINDS } from '../../protocol/api/events.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { exitAtSignal } from '../terminal/output.ts';
import { EventFormatter } from './event-line.ts';

const KINDS: readonly string[] = [...EVENT_KINDS, ...documentKinds];

const MORE = `
Exit codes: 0 after --limit events, or when the reader of the output ended; 1 refused; 2 wrong usage, or an unknown server; 3 no instance answered for a \
minute; 128 + N when signal N ended this program (130 Ctrl-C, 129 SIGHUP, 143 SIGTERM).
`;

interface Options {
  kind?: string[];
  server?: string;
  after?: string;
  limit?: string;
}

export function eventsCommand(runner: CommandRunner): Command {
  const command = new Command('events')
    .description(
      'Follows the events of the fleet until it is interrupted. If an instance stops, it continues at another one. It reports missing events.',
    )
    .option(
      '--kind <kind>',
      `${KINDS.join(', ')}; for several, separate them by commas or repeat the option (default: all)`,
      collectValues,
    )
    .option('--server <server>', 'only of this server: uuid or hostname')
    .option('--after <id>', 'continue after this event; --json shows the ids')
    .option('--limit <count>', 'end after this many')
    .action(runner.action(events));
  return withExamples(withExplanation(command, MORE), [
    'cnapi events --kind status',
    'cnapi events --server web-1 --json',
    'cnapi events --kind task --limit 1',
  ]);
}

async function events({ client, clock, output }: Context, _: unknown, options: Options): Promise<number> {
  const kinds = (options.kind ?? []).flatMap((kind) => kind.split(','));
  const unknownKind = kinds.find((kind) => !KINDS.includes(kind));
  if (unknownKind !== undefined) throw new UsageError(`--kind ${unknownKind} is not one of ${KINDS.join(', ')}`);
  const limit = options.limit === undefined ? Number.POSITIVE_INFINITY : parseCount(options.limit, '--limit');
  const server = options.server === undefined ? undefined : (await findServer(client, options.server)).uuid;
  const formatter = new EventFormatter(await client.learnInstances());
  const query = { ...(kinds.length > 0 && { kind: kinds }), server };
  const onBroken = (reason: string) => output.note(`${reason}; continuing at another instance`);
  const onOpen = () => output.note('following');
  const stop = exitAtSignal(clock);
  let count = 0;
  for await (const event of client.events(query, { after: options.after, onBroken, onOpen })) {
    if (output.json) output.record(event);
    else output.line(formatter.format(event));
    await output.ready();
    if (++count >= limit) break;
  }
  stop();
  return EXIT.ok;
}
