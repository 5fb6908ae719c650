/** Makes, lists and revokes tokens. Called by the routes, and by `cnapi token create --config` for the first one. */
import { randomBytes } from 'node:crypto';
import type { Queryable } from '../moray/database.ts';
import type { Random } from '../ports/random.ts';
import { BadTokenNameError, TokenNotFoundError } from './access-errors.ts';
import { formatToken, hashSecret, type Role, reasonNotAName, type Token } from './token.ts';
import { insertToken, isToken, listTokens, revokeToken, type TokenFilter } from './token-store.ts';

export interface TokenRequest {
  name: string;
  role: Role;
  createdBy: string;
  /** Never, when absent. */
  expiresInSeconds?: number | undefined;
  /** Of an agent's token: the one server that it is good for. */
  serverUuid?: string | undefined;
}

const SECRET_BYTES = 32;

export class Tokens {
  readonly #database: Queryable;
  readonly #random: Random;

  constructor({ database, random }: { database: Queryable; random: Random }) {
    this.#database = database;
    this.#random = random;
  }

  /** With its text, which nobody can ask for again. @throws TokenNameTakenError, BadTokenNameError */
  async create(request: TokenRequest): Promise<Token & { token: string }> {
    const { name, role, createdBy, expiresInSeconds, serverUuid } = request;
    const reason = reasonNotAName(name);
    if (reason !== undefined) throw new BadTokenNameError(name, reason);
    const uuid = this.#random.uuid();
    // Not from `Random`, which a simulation may foresee.
    const secret = randomBytes(SECRET_BYTES).toString('base64url');
    const secretHash = hashSecret(secret);
    const fields = { uuid, name, role, serverUuid, secretHash, createdBy, expiresInSeconds };
    return { ...(await insertToken(this.#database, fields)), token: formatToken({ uuid, secret }) };
  }

  /** Newest first. @throws TokenNotFoundError when the one to go on after is there no more */
  async list(filter: TokenFilter): Promise<Token[]> {
    const { after } = filter;
    if (after !== undefined && !(await isToken(this.#database, after))) throw new TokenNotFoundError(after);
    return listTokens(this.#database, filter);
  }

  /** Within a second no instance takes it any more. Again is harmless. @throws TokenNotFoundError */
  async revoke(uuid: string): Promise<void> {
    if (!(await revokeToken(this.#database, uuid))) throw new TokenNotFoundError(uuid);
  }
}
