/** Platforms: their documents and their routes. */

import {
  type BootPlatform,
  bootPlatforms,
  latestPlatform,
  MAX_PLATFORMS,
  PLATFORM_OS,
} from '../../../protocol/api/documents/platforms.ts';
import { bind, ok } from '../../http/route.ts';
import type { Subsystem } from '../../subsystem.ts';
import { TooManyDocumentsError } from '../document-errors.ts';
import type { DocumentSubsystem } from '../document-subsystem.ts';
import { Documents } from '../documents.ts';
import { documentRoutes, versionedAnswer } from '../routes/document-routes.ts';

/**
 * The platforms as Triton answers them. `byOs`: each has its operating system, and each system a
 * latest one.
 */
export function toPlatforms(platforms: readonly Pick<BootPlatform, 'name' | 'os'>[], byOs: boolean) {
  const latestOf = (some: typeof platforms) => latestPlatform(some.map(({ name }) => name));
  const latest = byOs
    ? PLATFORM_OS.map((os) => latestOf(platforms.filter((one) => one.os === os)))
    : [latestOf(platforms)];
  const entries = platforms
    .toSorted((one, other) => (one.name < other.name ? -1 : 1))
    .map(({ name, os }) => {
      const shown = { ...(latest.includes(name) && { latest: true as const }), ...(byOs && { os }) };
      return [name, shown] as const;
    });
  return Object.fromEntries(entries);
}

export const platformsSubsystem: DocumentSubsystem = {
  open({ buckets, random }): Subsystem {
    const documents = new Documents(bootPlatforms, { buckets, random });
    const all = async () => (await documents.list({}, { limit: MAX_PLATFORMS, after: undefined })).objects;
    return {
      name: 'platforms',
      prepare: () => documents.prepare(),
      routes: [
        ...documentRoutes(documents, {
          async create({ params, withAuditRecord }) {
            if ((await all()).length >= MAX_PLATFORMS) throw new TooManyDocumentsError('platforms', MAX_PLATFORMS);
            return versionedAnswer(201, await documents.create(params, withAuditRecord));
          },
        }),
        ...bind(bootPlatforms.further, {
          async ListPlatforms({ params: { os = false } }) {
            return ok(
              toPlatforms(
                (await all()).map(({ value }) => value),
                os,
              ),
            );
          },
        }),
      ],
    };
  },
};
