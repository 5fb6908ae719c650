/**
 * What images of servers contribute to an instance: only routes, because agents have the images.
 */
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { type ServerImageRouteDeps, serverImageRoutes } from './routes/server-image-routes.ts';

export const serverImagesSubsystem: SubsystemDefinition<ServerImageRouteDeps> = {
  open(parts): Subsystem {
    return { name: 'images of servers', routes: serverImageRoutes(parts) };
  },
};
