/** Answers the routes of tokens (lib/protocol/api/tokens.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import { MAX_TOKENS, tokenContracts } from '../../../protocol/api/tokens.ts';
import { bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import type { Tokens } from '../tokens.ts';
import { toCreatedToken, toToken } from './token-view.ts';

export function tokenRoutes({ tokens }: { tokens: Pick<Tokens, 'create' | 'list' | 'revoke'> }): Route[] {
  return bind(
    tokenContracts,
    {
      CreateToken: recordedInCommit(async ({ params, actor, withAuditRecord }) => {
        const { name, role, expires_in: expiresInSeconds, server_uuid: serverUuid } = params;
        if (serverUuid !== undefined && role !== 'agent')
          throw invalidParameter('server_uuid', 'only a token with role agent can be good for one server');
        const request = { name, role, createdBy: actor.name, expiresInSeconds, serverUuid };
        const body = toCreatedToken(await withAuditRecord((record) => tokens.create({ ...request, record })));
        return { status: 201 as const, body, headers: { 'Cache-Control': 'no-store' } };
      }),
      async ListTokens({ params }) {
        const { ended: isOver, limit = MAX_TOKENS, ...others } = params;
        return ok((await tokens.list({ ...others, isOver, limit })).map(toToken));
      },
      async RevokeToken({ params }) {
        await tokens.revoke(params.uuid);
        return empty(204);
      },
    },
    { ListTokens: { answerBytes: 4 * 1024 * 1024 } },
  );
}
