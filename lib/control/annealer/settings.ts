/** The configuration of the annealer. Pure. */
import { z } from 'zod';
import { commaList, whole } from '../../platform/setting-rules.ts';
import { JIGS } from '../../protocol/api/documents/annealer.ts';

type Jig = (typeof JIGS)[number];

export const annealerSettings = {
  annealerMaxRuns: whole(0, 10_000)
    .default(10)
    .describe('How many runs of noderoles the annealer has at the same time in the whole zone; 0 pauses it'),
  annealerJigs: commaList(z.array(z.enum(JIGS)))
    .default(['noop', 'script'])
    .describe(`Which kinds of roles are bound and run, of ${JIGS.join(', ')} ([annealer](annealer.md#roles))`),
};

export interface AnnealerSettings {
  annealerMaxRuns: number;
  annealerJigs: readonly Jig[];
}
