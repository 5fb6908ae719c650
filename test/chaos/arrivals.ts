/**
 * Agents that arrive several times as fast as the instances can admit them: a process of simulated
 * agents for servers of its own, the same each time. They stay until the zone has recovered, so all
 * of them must have been connected.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { serverUuidOf } from '../../lib/agent/simulated/fleet.ts';
import type { Instance } from '../support/fleet-harness.ts';
import { pick } from './chance.ts';
import type { FaultKind, Stage } from './harm.ts';

/** Some seconds of work for two cores. */
const AGENTS = 400;
const PER_SECOND = 5_000;
const SEED = 'crowd';
const crowd: readonly string[] = Array.from({ length: AGENTS }, (_, number) => serverUuidOf(SEED, number));

/** Returns a function that ends them. */
function start({ zone, health }: Pick<Stage, 'zone' | 'health'>): () => Promise<void> {
  const program = zone.fleetOf('crowd', ['--agents', String(AGENTS), '--rate', String(PER_SECOND), '--seed', SEED]);
  health.also.add(program);
  program.start();
  return async () => {
    health.also.delete(program);
    await program.kill('SIGKILL');
  };
}

export const arrivalFaults: readonly FaultKind[] = [
  {
    name: 'many agents arriving',
    prepare(stage) {
      let leave: (() => Promise<void>) | undefined;
      return {
        part: 'crowd',
        crowd,
        lastsMs: 4_000,
        begin: () => {
          leave = start(stage);
        },
        end: () => undefined,
        after: () => leave?.(),
      };
    },
  },
  {
    name: 'many agents arriving, an instance killed',
    prepare(stage) {
      const { zone, health, random } = stage;
      const instance = pick([...zone.instances.keys()], random);
      const { program, uuid } = zone.instances[instance] as Instance;
      let leave: (() => Promise<void>) | undefined;
      return {
        part: 'instance',
        instance,
        crowd,
        // These arrive as well, and may have to wait.
        servers: health.roster.filter(({ owner }) => owner === uuid).map(({ server }) => server),
        lastsMs: 3_000,
        begin: async () => {
          leave = start(stage);
          await sleep(1_000);
          health.down.add(program);
          await program.kill('SIGKILL');
        },
        end: () => {
          program.start();
          health.down.delete(program);
        },
        after: () => leave?.(),
      };
    },
  },
];
