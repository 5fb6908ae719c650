/** Answers the routes of instances (lib/protocol/api/instances.ts). */
import { instanceContracts } from '../../../protocol/api/instances.ts';
import { accepted, bind, ok, type Route } from '../../http/route.ts';
import type { Roster } from '../roster.ts';
import { toInstance } from './instance-view.ts';

export function instanceRoutes({ roster }: { roster: Pick<Roster, 'listInstances' | 'drain'> }): Route[] {
  return bind(instanceContracts, {
    ListInstances: async () => ok((await roster.listInstances()).map(toInstance)),
    DrainInstance: async ({ params }) => accepted(toInstance(await roster.drain(params.uuid))),
  });
}
