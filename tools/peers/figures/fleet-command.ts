/**
 * One command that does nothing (`true`, a real process) on 50 nodes, as a user runs it: from the
 * start of the command line until it ends with the result of each node. cnapi: `cnapi job start`
 * with a vote of all, at three instances, with 50 real agents. Ansible: the module `command`, over
 * SSH to one sshd, with as many forks as nodes; all of it on this machine.
 */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../../bench/figure.ts';
import type { Zone } from '../../bench/zone.ts';
import { ownProgram } from '../../processes/program.ts';
import { startAnsibleFleet, whyNoAnsible } from '../ansible-fleet.ts';
import { compare, type Side, takePairs, withAbsent } from '../contest.ts';
import { OWN } from './own-tasks.ts';

const run = promisify(execFile);

const NODES = 50;
const QUICK_NODES = 3;

export const fleetCommand: Figure = {
  name: 'fleet-command',
  says: 'one command on 50 nodes as a user runs it: `cnapi job start`, compared with Ansible',
  seconds: 180,
  measure,
};

async function measure(context: BenchContext): Promise<Result[]> {
  const nodes = context.isQuick ? QUICK_NODES : NODES;
  const zone = await context.startZone();
  await zone.addAgents(nodes);
  const own: Side = timed(OWN, () => runOwn(context, zone));
  await own.take();
  const reason = whyNoAnsible();
  if (reason !== undefined) {
    const { time = Number.NaN } = await own.take();
    return withAbsent([{ what: whatOf(nodes), value: time, unit: 'ms' }], [{ name: 'Ansible', reason }]);
  }
  const fleet = await startAnsibleFleet(context, nodes);
  try {
    await fleet.runTrue({ keepsConnections: true });
    const peers = [
      timed('Ansible', () => fleet.runTrue({ keepsConnections: false })),
      timed('Ansible, connections kept', () => fleet.runTrue({ keepsConnections: true })),
    ];
    const { rounds } = context;
    const pairs = await takePairs(own, peers, { rounds, say: (text) => context.say(`fleet-command, ${text}`) });
    return compare(pairs, [{ key: 'time', what: whatOf(nodes), unit: 'ms' }]);
  } finally {
    await fleet.stop();
    await zone.stop();
  }
}

const whatOf = (nodes: number): string => `\`true\` on ${nodes} nodes, from the command line to all results`;

function timed(name: string, work: () => Promise<void>): Side {
  return {
    name,
    async take() {
      const startedAt = clock.now();
      await work();
      return { time: clock.now() - startedAt };
    },
  };
}

/** @throws when it did not succeed on each: the exit code says so */
async function runOwn({ directory }: BenchContext, { instances }: Zone): Promise<void> {
  const url = instances.map((instance) => instance.url).join(',');
  const { file, args } = ownProgram('lib/cli/main.ts', ['job', 'start', '--all', '--url', url, '--', 'true']);
  const env = { PATH: process.env.PATH, HOME: directory, NODE_COMPILE_CACHE: path.join(directory, 'compile-cache') };
  await run(file, [...args], { env });
}
