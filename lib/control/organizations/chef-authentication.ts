/**
 * Authenticates requests that are signed in the Chef API protocol, and finds out what their senders
 * may do in an organization. The listener calls `check` and `authenticate` for the routes that accept
 * such requests; the routes call `requestor`.
 *
 *     headers ──missing, or an unknown version──▶ 400
 *             ──not readable──▶ 401
 *     body    ──not the signed one──▶ 401
 *     claim   ──no such organization──▶ 404 ──more than 15 minutes ago or ahead──▶ 401
 *             ──nobody has the name, or no key fits──▶ 401 ──of other organizations only──▶ 403
 *     known   ──a change that was received before──▶ 401
 */
import { createHash } from 'node:crypto';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Organization } from '../../protocol/api/organizations.ts';
import type { Actor, Principal } from '../access/token.ts';
import type { ReceivedRequest } from '../http/listener/request-signing.ts';
import { NotAssociatedError, NotAuthenticatedError, UnsignedRequestError } from './chef-errors.ts';
import {
  canonicalText,
  type HeaderRefusal,
  hasBody,
  isSignedWith,
  readClaim,
  type SignatureClaim,
} from './chef-signature.ts';
import { type FoundPrincipal, findPrincipals, readGroups } from './organization-store.ts';
import type { Organizations } from './organizations.ts';
import { ADMINS, neededGroups, READERS, type Requestor, WRITERS } from './requestor.ts';
import { rememberSignature } from './signature-store.ts';

interface ChefAuthenticationDeps {
  database: Queryable;
  organizations: Pick<Organizations, 'organization'>;
}

const MAX_SKEW_MS = 900_000;

export class ChefAuthentication {
  readonly #deps: ChefAuthenticationDeps;

  constructor(deps: ChefAuthenticationDeps) {
    this.#deps = deps;
  }

  /** Checks the headers alone, before anything else is done for the request. @throws the refusal */
  check({ header }: Pick<ReceivedRequest, 'header'>): void {
    claimOf(header);
  }

  /** Who signed the request about this organization. @throws the refusals above */
  async authenticate(request: ReceivedRequest, organizationName: string): Promise<Actor> {
    const claim = claimOf(request.header);
    const { userId } = claim;
    if (!hasBody(claim, request.body))
      throw new NotAuthenticatedError(`${invalidSignature(userId)}: the body is not the signed one`);
    const organization = await this.#deps.organizations.organization(organizationName);
    const { now, principals } = await findPrincipals(this.#deps.database, organization.uuid, userId);
    if (Math.abs(now.getTime() - claim.signedAt.getTime()) > MAX_SKEW_MS)
      throw new NotAuthenticatedError(`${failed(userId)}. Synchronize the clock on your host.`);
    if (principals.length === 0)
      throw new NotAuthenticatedError(`${failed(userId)}. Ensure that your node_name and client key are correct.`);
    const text = canonicalText(claim, request);
    const found = principals.find(({ keys }) => keys.some((pem) => isSignedWith(pem, claim, text)));
    if (found === undefined) throw new NotAuthenticatedError(invalidSignature(userId));
    if (!found.isAssociated) throw new NotAssociatedError(userId, organization.name);
    if (request.method !== 'GET') await this.#refuseReplay(claim, found, text);
    return actorOf({ kind: found.kind, uuid: found.uuid, name: userId, organization });
  }

  /**
   * What the caller may do in an organization.
   * @throws OrganizationNotFoundError
   */
  async requestor(actor: Actor, organizationName: string): Promise<Requestor & { organization: Organization }> {
    const organization = await this.#deps.organizations.organization(organizationName);
    const { principal } = actor;
    if (principal === undefined) {
      const needs = neededGroups(new Set());
      return { name: actor.name, kind: 'token', groups: new Set(), needs, actor, organization };
    }
    const { kind, name, uuid } = principal;
    const where = { organization: organization.uuid, kind, uuid };
    const { memberOf, existing } = await readGroups(this.#deps.database, where, [READERS, WRITERS, ADMINS]);
    return { name, kind, groups: new Set(memberOf), needs: neededGroups(new Set(existing)), actor, organization };
  }

  /**
   * Equal requests of one second have one signature; the text identifies it whatever its encoding.
   * @throws NotAuthenticatedError
   */
  async #refuseReplay({ version, userId }: SignatureClaim, { uuid }: FoundPrincipal, text: string): Promise<void> {
    const digest = createHash('sha256').update(`${uuid}\n${version}\n${text}`).digest();
    if (!(await rememberSignature(this.#deps.database, digest)))
      throw new NotAuthenticatedError(`${failed(userId)}. This signed request was received before; sign it again.`);
  }
}

/** @throws UnsignedRequestError, NotAuthenticatedError */
function claimOf(header: ReceivedRequest['header']): SignatureClaim {
  const claim = readClaim(header);
  if (!isRefusal(claim)) return claim;
  if (claim.status === 400) throw new UnsignedRequestError(claim.message);
  throw new NotAuthenticatedError(claim.message);
}

const isRefusal = (claim: SignatureClaim | HeaderRefusal): claim is HeaderRefusal => 'status' in claim;

const failed = (userId: string): string => `Failed to authenticate as '${userId}'`;
const invalidSignature = (userId: string): string => `Invalid signature for user or client '${userId}'`;

/** No token can have such a name, so the audit's names are unambiguous. */
function actorOf(principal: Principal & { organization: Organization }): Actor {
  const { kind, name, organization } = principal;
  return { name: `${kind} '${name}' of '${organization.name}'`, roles: [], principal };
}
