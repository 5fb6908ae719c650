/** `cnapi vm port-forward`: ports of this machine that lead to ports of a VM. */
import { Command } from 'commander';
import { streamContracts } from '../../protocol/api/streams.ts';
import { forwardIn, forwardPorts } from '../exec/port-forward.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { RefusedError } from '../terminal/command-errors.ts';
import { findVm, VM_TEXT } from './vm-lookup.ts';

const MORE = `
8080:80 listens on port 8080 of this machine and leads to port 80 of the VM; 80 has the same number at both ends; :80 listens on \
a port that is free. The agent connects to 127.0.0.1 in the network of the VM, so the VM needs no address of its own.

In all else it is like cnapi port-forward. Ctrl-C ends all connections; the exit code is then 0.
`;

export function vmPortForwardCommand(runner: CommandRunner): Command {
  const command = new Command('port-forward')
    .description('Forwards ports of this machine to ports of a VM.')
    .usage('[options] <vm> <port...>')
    .argument('<vm>', VM_TEXT)
    .argument('<port...>', 'LOCAL:REMOTE, PORT or :REMOTE')
    .option('--address <address>', 'listen on this address of this machine', '127.0.0.1')
    .action(runner.action(portForward));
  return withExamples(withExplanation(command, MORE), ['cnapi vm port-forward web 8080:80']);
}

async function portForward(
  context: Context,
  [name, ports]: readonly unknown[],
  { address }: { address: string },
): Promise<number> {
  const forwards = (ports as string[]).map(forwardIn);
  const { client } = context;
  const { server_uuid, server_status: status, uuid, state } = await findVm(client, String(name));
  if (status === 'running' && state !== undefined && state !== 'running')
    throw new RefusedError(`${name} is ${state}; cnapi vm start starts a VM that is stopped`);
  const connect = (stream: string, port: number) =>
    client.ask(streamContracts.StartVmConnection, { server_uuid, vm_uuid: uuid, stream, port });
  return forwardPorts(context, { name: String(name), serverUuid: server_uuid, status, connect }, { address, forwards });
}
