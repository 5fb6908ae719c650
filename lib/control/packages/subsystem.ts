/**
 * What packages of agents contribute to an instance: only routes, because agents have the packages.
 */
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { type PackageRouteDeps, packageRoutes } from './routes/package-routes.ts';

export const packagesSubsystem: SubsystemDefinition<PackageRouteDeps> = {
  open(parts): Subsystem {
    return { name: 'packages of agents', routes: packageRoutes(parts) };
  },
};
