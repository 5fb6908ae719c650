/**
 * Authenticates requests that are signed in the Chef API protocol. The listener calls `check` and
 * `authenticate` for the routes that accept such requests, and `permitRepetition` for a change that
 * it refused for now.
 *
 *     headers ──missing, or an unknown version──▶ 400
 *             ──not readable──▶ 401
 *     claim   ──no such organization──▶ 404 ──more than 15 minutes ago or ahead──▶ 401
 *             ──nobody has the name, or no key fits──▶ 401 ──of other organizations only──▶ 403
 *     body    ──not the signed one──▶ 401 ──a change that was received before──▶ 401
 *             ──10,000 changes in an hour──▶ 429
 */
import { createHash } from 'node:crypto';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Actor, Principal } from '../../access/token.ts';
import type { SignedCaller, SignedRequestHead } from '../../http/listener/request-signing.ts';
import { UNUSED_KEY } from '../../organizations/key-material.ts';
import { OrganizationNotFoundError } from '../../organizations/organization-errors.ts';
import { type FoundPrincipal, type FoundRequestor, findPrincipals } from '../../organizations/organization-store.ts';
import { isOrganizationName } from '../../organizations/organizations.ts';
import {
  canonicalText,
  type HeaderRefusal,
  hasBody,
  isSignedWith,
  readClaim,
  type SignatureClaim,
} from './chef-signature.ts';
import { KnownKeys } from './known-keys.ts';
import {
  NotAssociatedError,
  NotAuthenticatedError,
  TooManyChangesError,
  UnsignedRequestError,
} from './signature-errors.ts';
import { permitRepetition, rememberSignature } from './signature-store.ts';

interface ChefAuthenticationDeps {
  database: Queryable;
  /** The most changes that one user or client may send in an hour. Default 10,000. */
  maxChanges?: number | undefined;
}

const MAX_SKEW_MS = 900_000;
const RECEIVED_BEFORE =
  'This signed request was received before; wait a second and sign it again, because the time in it has seconds only.';

export class ChefAuthentication {
  readonly #deps: ChefAuthenticationDeps;
  readonly #known = new KnownKeys();

  constructor(deps: ChefAuthenticationDeps) {
    this.#deps = deps;
  }

  /** Checks the headers alone, before anything else is done for the request. @throws the refusal */
  check({ header }: Pick<SignedRequestHead, 'header'>): void {
    claimOf(header);
  }

  /** See `RequestSigning`. The cost is that of checking a signature or two. */
  isKnown(request: SignedRequestHead, organizationName: string): boolean {
    const claim = claimOf(request.header);
    return this.#knownKeyOf(claim, canonicalText(claim, request), organizationName) !== undefined;
  }

  /** Who signed the headers of the request about this organization. @throws the refusals above */
  async authenticate(request: SignedRequestHead, organizationName: string): Promise<SignedCaller> {
    const claim = claimOf(request.header);
    const { userId } = claim;
    const text = canonicalText(claim, request);
    const { now, principals } = await this.#find(organizationName, userId);
    if (Math.abs(now.getTime() - claim.signedAt.getTime()) > MAX_SKEW_MS)
      throw new NotAuthenticatedError(`${failed(userId)}. Synchronize the clock on your host.`);
    const signer = signerOf(principals, (pem) => isSignedWith(pem, claim, text));
    if (signer === undefined) {
      this.#forgetKey(claim, text, organizationName);
      throw new NotAuthenticatedError(`${failed(userId)}. Ensure that your node_name and client key are correct.`);
    }
    if (!signer.isAssociated) throw new NotAssociatedError(userId, organizationName);
    this.#known.add(callerOf(claim, organizationName), signer.key);
    const { database, maxChanges } = this.#deps;
    const digest = digestOf(claim, signer, text);
    return {
      actor: actorOf({ kind: signer.kind, uuid: signer.uuid, name: userId, publicKey: signer.key }, organizationName),
      checkBody(body) {
        if (!hasBody(claim, body))
          throw new NotAuthenticatedError(`${invalidSignature(userId)}: the body is not the signed one`);
      },
      // Rights are checked later, because a change that is refused today may be permitted in a
      // minute, and must not be sent again then. So the number of changes is limited whatever they
      // may do.
      async receive(source) {
        const received = { digest, source, principal: signer.uuid, limit: maxChanges };
        const reception = await rememberSignature(database, received);
        if (reception === 'full') throw new TooManyChangesError(userId);
        if (reception === 'replayed') throw new NotAuthenticatedError(`${failed(userId)}. ${RECEIVED_BEFORE}`);
      },
      permitRepetition: (source) => permitRepetition(database, { digest, source }),
    };
  }

  /** @throws OrganizationNotFoundError */
  async #find(organizationName: string, userId: string): Promise<FoundRequestor> {
    const found = isOrganizationName(organizationName)
      ? await findPrincipals(this.#deps.database, organizationName, userId)
      : undefined;
    if (found === undefined) throw new OrganizationNotFoundError(organizationName);
    return found;
  }

  #knownKeyOf(claim: SignatureClaim, text: string, organizationName: string): string | undefined {
    const keys = this.#known.of(callerOf(claim, organizationName));
    return keys.find((pem) => isSignedWith(pem, claim, text));
  }

  /**
   * Forgets a key that is not valid any more, so that its holder is limited like everybody else.
   */
  #forgetKey(claim: SignatureClaim, text: string, organizationName: string): void {
    const key = this.#knownKeyOf(claim, text, organizationName);
    if (key !== undefined) this.#known.delete(callerOf(claim, organizationName), key);
  }
}

/** @throws UnsignedRequestError, NotAuthenticatedError */
function claimOf(header: SignedRequestHead['header']): SignatureClaim {
  const claim = readClaim(header);
  if (!isRefusal(claim)) return claim;
  if (claim.status === 400) throw new UnsignedRequestError(claim.message);
  throw new NotAuthenticatedError(claim.message);
}

/**
 * Equal requests of one second have one signature; the text identifies it whatever its encoding.
 */
function digestOf({ version }: SignatureClaim, { uuid }: FoundPrincipal, text: string): Buffer {
  return createHash('sha256').update(`${uuid}\n${version}\n${text}`).digest();
}

const callerOf = ({ userId }: SignatureClaim, organizationName: string): string => `${organizationName} ${userId}`;

/**
 * The owner of the first key that fits, and the key. An unknown name takes as long as one with a
 * key, so that nobody finds out names without a key.
 */
function signerOf(
  principals: readonly FoundPrincipal[],
  fits: (pem: string) => boolean,
): (FoundPrincipal & { key: string }) | undefined {
  if (principals.every(({ keys }) => keys.length === 0)) fits(UNUSED_KEY);
  for (const principal of principals) {
    const key = principal.keys.find(fits);
    if (key !== undefined) return { ...principal, key };
  }
  return undefined;
}

const isRefusal = (claim: SignatureClaim | HeaderRefusal): claim is HeaderRefusal => 'status' in claim;

const failed = (userId: string): string => `Failed to authenticate as '${userId}'`;
const invalidSignature = (userId: string): string => `Invalid signature for user or client '${userId}'`;

/** No token can have such a name, so the audit's names are unambiguous. */
function actorOf(principal: Principal, organizationName: string): Actor {
  return { name: `${principal.kind} '${principal.name}' of '${organizationName}'`, roles: [], principal };
}
