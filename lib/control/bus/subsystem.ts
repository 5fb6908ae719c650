/** What the bus contributes to an instance. */
import type { Bus, BusStats } from '../../platform/bus/bus.ts';
import { checkBus } from '../doctor/bus.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';

export const busSubsystem: SubsystemDefinition<{ bus: Bus }> = {
  checks: { bus: checkBus },
  open({ bus }): Subsystem {
    const stat = (key: keyof BusStats) => () => bus.stats()[key];
    return {
      name: 'bus',
      start: () => bus.start(),
      stop: () => bus.stop(),
      metrics: [
        gauge('bus_healthy', '1 while the bus carries messages', () => Number(bus.isHealthy())),
        counter('bus_published_total', 'Messages sent', stat('published')),
        counter('bus_received_total', 'Messages received', stat('received')),
        counter('bus_dropped_total', 'Messages that could not be sent or read', stat('dropped')),
        counter('bus_reconnects_total', 'Connections to the bus that were opened again', stat('reconnects')),
        gauge('bus_topics', 'Topics subscribed', stat('topics')),
      ],
    };
  },
};
