/** What the watch of file descriptors contributes to an instance. */
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { DescriptorWatch } from './descriptors.ts';

interface DescriptorParts {
  config: { maxAgents: number };
  clock: Clock;
  log: Logger;
}

export const descriptorSubsystem: SubsystemDefinition<DescriptorParts> = {
  open({ config: { maxAgents }, clock, log }): Subsystem {
    const watch = new DescriptorWatch({ maxAgents, clock, log });
    return { name: 'descriptors', start: () => watch.start(), stop: () => watch.stop() };
  },
};
