/** Answers the five routes of a noun (lib/protocol/api/documents/document-noun.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import type { BucketObject } from '../../../platform/moray/bucket.ts';
import type { Contract, ParamsOf } from '../../../protocol/api/contract/contract.ts';
import { MAX_LIST } from '../../../protocol/api/contract/rules.ts';
import {
  bind,
  empty,
  ok,
  type RequestContext,
  type Route,
  type RouteAnswer,
  recordedInCommit,
} from '../../http/route.ts';
import type { Documents } from '../documents.ts';

const LIST_BYTES = 2 * 1024 * 1024;

interface OwnHandlers {
  create?(
    context: RequestContext<ParamsOf<Contract>>,
  ): Promise<Pick<RouteAnswer, 'body' | 'headers'> & { status: number }>;
}

/** `own`: the handlers of a noun whose creation is more than the storing of its fields. */
export function documentRoutes(documents: Documents, own: OwnHandlers = {}): Route[] {
  const { contracts, plural } = documents.noun;
  return bind(
    contracts,
    {
      async list({ params: { limit = MAX_LIST, after, ...fields } }) {
        const place = { limit: Number(limit), after: after as string | undefined };
        const { objects, next } = await documents.list(fields, place);
        return ok({ [plural]: objects.map(({ value }) => value), ...(next !== undefined && { next }) });
      },
      get: async ({ params }) => versionedAnswer(200, await documents.get(String(params.uuid))),
      create: recordedInCommit(
        async (context) =>
          own.create?.(context) ??
          versionedAnswer(201, await documents.create(context.params, context.withAuditRecord)),
      ),
      update: recordedInCommit(async ({ params: { uuid, ...changes }, header, withAuditRecord }) => {
        return versionedAnswer(200, await documents.update(String(uuid), changes, ifMatch(header), withAuditRecord));
      }),
      delete: recordedInCommit(async ({ params, header, withAuditRecord }) => {
        await documents.delete(String(params.uuid), ifMatch(header), withAuditRecord);
        return empty(204);
      }),
    },
    { list: { answerBytes: LIST_BYTES } },
  );
}

export const versionedAnswer = <Status extends number>(
  status: Status,
  { value, etag }: Pick<BucketObject, 'value' | 'etag'>,
) => ({
  ...ok(value),
  status,
  headers: { ETag: `"${etag}"` },
});

/**
 * The etag that the document must have (RFC 9110, section 13.1.1). @throws InvalidParametersError
 */
export function ifMatch(header: (name: string) => string | undefined): string | undefined {
  const text = header('If-Match')?.trim();
  if (text === undefined || text === '*') return undefined;
  const [, etag] = /^"([^"]*)"$/.exec(text) ?? [];
  if (etag !== undefined) return etag;
  throw invalidParameter('If-Match', 'value was not one entity tag in double quotes, nor *');
}
