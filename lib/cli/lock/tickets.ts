/** `cnapi tickets`: shows the queues of locks, or the tickets of one server. */
import { Command } from 'commander';
import type { Queue, Ticket } from '../../protocol/api/tickets.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findQueueServer, serverLabels } from '../lookup/find.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export function ticketsCommand(runner: CommandRunner): Command {
  const command = new Command('tickets')
    .description(
      'Shows every lock that is held or waited for; with a server, its tickets in the order of their creation.',
    )
    .argument('[server]', "uuid, the beginning of one, hostname, or `default` for the datacenter's own")
    .option('-a, --all', 'also tickets that have ended')
    .action(runner.action(tickets));
  return withExamples(command, ['cnapi tickets', 'cnapi tickets web-1', 'cnapi tickets default --all --json']);
}

/** `labelOf` returns the name of a server for people. */
const queueColumns = (labelOf: (uuid: string) => string): readonly Column<Queue>[] => [
  { head: 'SERVER', of: ({ server_uuid }) => labelOf(server_uuid), shrinks: true },
  { head: 'SCOPE', of: ({ scope }) => scope, shrinks: true },
  { head: 'ID', of: ({ id }) => id, shrinks: true },
  { head: 'HOLDER', of: ({ holder }) => holder?.actor, shrinks: true },
  { head: 'ACTION', of: ({ holder }) => holder?.action, shrinks: true },
  { head: 'TICKET', of: ({ holder }) => holder?.uuid, abbreviates: true },
  { head: 'HELD FOR', of: ({ holder }) => holder && shortDuration(holder.active_ms), align: 'right' },
  { head: 'WAITING', of: ({ depth }) => depth, align: 'right' },
  { head: 'LONGEST', of: (queue) => queue.oldest_waiting_ms && shortDuration(queue.oldest_waiting_ms), align: 'right' },
];

const TICKET: readonly Column<Ticket>[] = [
  { head: 'TICKET', of: ({ uuid }) => uuid, abbreviates: true },
  { head: 'SCOPE', of: ({ scope }) => scope, shrinks: true },
  { head: 'ID', of: ({ id }) => id, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'CREATED', of: ({ created_at }) => shortTime(created_at) },
  { head: 'EXPIRES', of: ({ expires_at }) => shortTime(expires_at) },
  { head: 'ACTOR', of: ({ actor }) => actor, shrinks: true },
  { head: 'ACTION', of: ({ action }) => action, shrinks: true },
];

async function tickets(
  { client, output }: Context,
  [name]: readonly unknown[],
  { all: everything = false }: { all?: boolean },
): Promise<void> {
  if (name === undefined) {
    const queues = await client.queues();
    if (output.json) return output.document(queues);
    output.table(queueColumns(await serverLabels(client, queues)), queues);
    if (queues.length === 0) output.note('No lock is held');
    return;
  }
  const uuid = await findQueueServer(client, String(name));
  const shown = everything ? await client.tickets(uuid) : await client.openTickets(uuid);
  if (output.json) return output.document(shown);
  output.table(TICKET, shown);
  if (shown.length === 0) output.note('The server has no such ticket');
}
