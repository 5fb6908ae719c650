/** Answers the routes of the waitlist (lib/protocol/api/tickets.ts). */
import { MAX_LIST, MAX_WAIT_SECONDS } from '../../../protocol/api/contract/rules.ts';
import { ticketContracts } from '../../../protocol/api/tickets.ts';
import { idempotencyKey } from '../../http/idempotency-key.ts';
import { accepted, bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { InstanceDrainingError, InvalidArgumentError, PreconditionFailedError } from '../../request-errors.ts';
import type { ExpiryRequest } from '../ticket.ts';
import type { Waitlist } from '../waitlist.ts';
import { toCreatedTicket, toQueue, toTicket } from './ticket-view.ts';
import { answerWait } from './ticket-waits.ts';

interface TicketRouteDeps {
  waitlist: Pick<
    Waitlist,
    'create' | 'get' | 'list' | 'listOpen' | 'queues' | 'wait' | 'release' | 'renew' | 'delete' | 'deleteAll'
  >;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

export function ticketRoutes({ waitlist, instanceLeaving }: TicketRouteDeps): Route[] {
  return bind(
    ticketContracts,
    {
      CreateTicket: recordedInCommit(async ({ params, requestId, header, actor, withAuditRecord }) => {
        const { server_uuid, scope, id, action, extra } = params;
        const ticket = { serverUuid: server_uuid, scope, id, action, extra, expiry: expiryOf(params) };
        const asked = { reqId: requestId, actor: actor.name, idempotencyKey: idempotencyKey(header) };
        return accepted(
          toCreatedTicket(await withAuditRecord((record) => waitlist.create({ ...ticket, ...asked, record }))),
        );
      }),
      async ListTickets({ params }) {
        const { server_uuid, limit = MAX_LIST, offset = 0, open = false, scope, id, reqid: reqId } = params;
        if (limit > MAX_LIST) throw new InvalidArgumentError(`limit must be less than ${MAX_LIST}`);
        if (open) {
          const found = await waitlist.listOpen(server_uuid, { scope, id, reqId, limit, offset });
          return ok(found.map(toTicket));
        }
        if ((scope ?? id ?? reqId) !== undefined)
          throw new InvalidArgumentError('scope, id and reqid are for open tickets: say open=true as well');
        return ok((await waitlist.list(server_uuid, { limit, offset })).map(toTicket));
      },
      async DeleteTickets({ params }) {
        if (String(params.force) !== 'true')
          throw new PreconditionFailedError('Will not delete all tickets without ?force=true');
        await waitlist.deleteAll(params.server_uuid);
        return empty(204);
      },
      GetTicket: async ({ params }) => ok(toTicket(await waitlist.get(params.ticket_uuid))),
      async WaitTicket({ params, signal }) {
        const { ticket_uuid, timeout: seconds = MAX_WAIT_SECONDS } = params;
        const result = await waitlist.wait(ticket_uuid, {
          timeoutMs: seconds * 1000,
          signal,
          endSignal: instanceLeaving,
        });
        if (result.outcome === 'timeout' && instanceLeaving.aborted) throw new InstanceDrainingError();
        return answerWait(ticket_uuid, result, seconds);
      },
      async ReleaseTicket({ params }) {
        await waitlist.release(params.ticket_uuid);
        return empty(204);
      },
      RenewTicket: async ({ params }) => ok(toTicket(await waitlist.renew(params.ticket_uuid, expiryOf(params)))),
      async DeleteTicket({ params }) {
        await waitlist.delete(params.ticket_uuid);
        return empty(204);
      },
      async ListQueues({ params: { limit = MAX_LIST, offset = 0 } }) {
        return ok((await waitlist.queues({ limit, offset })).map(toQueue));
      },
    },
    { ListTickets: { answerBytes: 4 * 1024 * 1024 }, ListQueues: { answerBytes: 1024 * 1024 } },
  );
}

interface WithExpiry {
  expires_at?: string | undefined;
  expires_in?: number | undefined;
}

function expiryOf({ expires_at, expires_in = 0 }: WithExpiry): ExpiryRequest {
  return expires_at === undefined ? { expiresInSeconds: expires_in } : { expiresAt: expires_at };
}
