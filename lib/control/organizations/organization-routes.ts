/** Answers the routes of organizations (lib/protocol/api/organizations.ts). */
import { documentRoutes } from '../documents/document-routes.ts';
import type { Route } from '../http/route.ts';
import { makeKeyPair } from './key-material.ts';
import type { Organizations } from './organizations.ts';

export function organizationRoutes({ documents }: Pick<Organizations, 'documents'>): Route[] {
  const { keys, ...others } = documents;
  return [
    ...Object.values(others).flatMap((one) => documentRoutes(one)),
    ...documentRoutes(keys, {
      async create({ params, withRecord }) {
        const pair = params.public_key == null ? await makeKeyPair() : undefined;
        const fields = pair === undefined ? params : { ...params, public_key: pair.publicKey };
        const { value, etag } = await keys.create(fields, withRecord);
        return {
          status: 201,
          body: pair === undefined ? value : { ...value, private_key: pair.privateKey },
          headers: { ETag: `"${etag}"`, 'Cache-Control': 'no-store' },
        };
      },
    }),
  ];
}
