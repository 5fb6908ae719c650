/**
 * Creates, lists and revokes tokens. Called by the routes, and by `cnapi token create` with
 * --config for the first one.
 */
import { randomBytes } from 'node:crypto';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { StatementPart } from '../../platform/postgres/sql-text.ts';
import type { Random } from '../../platform/random.ts';
import { type Role, reasonNotAName } from '../../protocol/api/contract/roles.ts';
import { BadTokenNameError, TokenNotFoundError } from './access-errors.ts';
import { formatToken, hashSecret } from './token.ts';
import { insertToken, isToken, listTokens, revokeToken, type TokenFilter, type TokenRow } from './token-store.ts';

export interface TokenRequest {
  name: string;
  role: Role;
  createdBy: string;
  /** Absent: the token never expires. */
  expiresInSeconds?: number | undefined;
  /** The one server that an agent's token is valid for. */
  serverUuid?: string | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: StatementPart | undefined;
}

/** A new token, with the text that a caller sends. */
export interface IssuedToken extends TokenRow {
  token: string;
}

const SECRET_BYTES = 32;

export class Tokens {
  readonly #database: Queryable;
  readonly #random: Random;

  constructor({ database, random }: { database: Queryable; random: Random }) {
    this.#database = database;
    this.#random = random;
  }

  /**
   * Returns the token with its text, which cannot be read again. @throws TokenNameTakenError,
   * BadTokenNameError
   */
  async create(request: TokenRequest): Promise<IssuedToken> {
    const { name, role, createdBy, expiresInSeconds, serverUuid, record } = request;
    const reason = reasonNotAName(name);
    if (reason !== undefined) throw new BadTokenNameError(name, reason);
    const uuid = this.#random.uuid();
    // Not from `Random`, which a simulation may predict.
    const secret = randomBytes(SECRET_BYTES).toString('base64url');
    const secretHash = hashSecret(secret);
    const fields = { uuid, name, role, serverUuid, secretHash, createdBy, expiresInSeconds };
    return { ...(await insertToken(this.#database, fields, record)), token: formatToken({ uuid, secret }) };
  }

  /** Newest first. @throws TokenNotFoundError if the token to start after no longer exists */
  async list(filter: TokenFilter): Promise<TokenRow[]> {
    const { after } = filter;
    if (after !== undefined && !(await isToken(this.#database, after))) throw new TokenNotFoundError(after);
    return listTokens(this.#database, filter);
  }

  /**
   * Every instance refuses it within a second. Repeating it is harmless. @throws TokenNotFoundError
   */
  async revoke(uuid: string): Promise<void> {
    if (!(await revokeToken(this.#database, uuid))) throw new TokenNotFoundError(uuid);
  }
}
