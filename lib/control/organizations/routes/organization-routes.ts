/** Answers the routes of organizations (lib/protocol/api/documents/organizations.ts). */
import { listContracts, requestorContracts } from '../../../protocol/api/documents/organizations.ts';
import { documentRoutes, ifMatch, versionedAnswer } from '../../documents/routes/document-routes.ts';
import { bind, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { makeKeyPair } from '../key-material.ts';
import type { Organizations } from '../organizations.ts';
import { toRequestor } from './requestor-view.ts';

type Lists = Readonly<Record<string, readonly string[]>>;

export function organizationRoutes(organizations: Pick<Organizations, 'documents' | 'requestor'>): Route[] {
  const { keys, ...others } = organizations.documents;
  const { users, groups } = others;
  return [
    ...Object.values(others).flatMap((noun) => documentRoutes(noun)),
    ...documentRoutes(keys, {
      async create({ params, withAuditRecord }) {
        const pair = params.public_key == null ? await makeKeyPair() : undefined;
        const fields = pair === undefined ? params : { ...params, public_key: pair.publicKey };
        const { value, etag } = await keys.create(fields, withAuditRecord);
        return {
          status: 201,
          body: pair === undefined ? value : { ...value, private_key: pair.privateKey },
          headers: { ETag: `"${etag}"`, 'Cache-Control': 'no-store' },
        };
      },
    }),
    ...bind(requestorContracts, {
      async GetRequestor({ actor, params }) {
        return ok(toRequestor(await organizations.requestor(actor, params.organization)));
      },
    }),
    ...bind(listContracts, {
      ChangeUserOrganizations: recordedInCommit(
        async ({ params: { uuid, change, ...lists }, header, withAuditRecord }) => {
          return versionedAnswer(
            200,
            await users.update(uuid, changed(change, lists), ifMatch(header), withAuditRecord),
          );
        },
      ),
      ChangeGroupMembers: recordedInCommit(async ({ params: { uuid, change, ...lists }, header, withAuditRecord }) => {
        return versionedAnswer(
          200,
          await groups.update(uuid, changed(change, lists), ifMatch(header), withAuditRecord),
        );
      }),
    }),
  ];
}

/** The lists of a document with these elements, or without them. */
function changed(change: 'add' | 'remove', lists: Lists) {
  return (before: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(
      Object.entries(lists).map(([field, elements]) => {
        const had = (before[field] ?? []) as string[];
        const others = had.filter((element) => !elements.includes(element));
        return [field, change === 'add' ? [...others, ...elements] : others];
      }),
    );
}
