/**
 * Organizations as the rest of the instance sees them: who may act in one, and which servers it has.
 * Nothing is cached: a change counts for the next request at any instance.
 */

import { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import {
  bindings,
  clients,
  groups,
  keys,
  MAX_KEYS_PER_OWNER,
  type Organization,
  organizations,
  users,
} from '../../protocol/api/organizations.ts';
import { Documents } from '../documents/documents.ts';
import { InvalidArgumentError } from '../http/http-errors.ts';
import { OrganizationNotFoundError } from './chef-errors.ts';
import { checkPublicKey } from './key-material.ts';
import * as store from './organization-store.ts';

type Fields = Readonly<Record<string, unknown>>;

/** `ambiguous`: several servers of the organization have this hostname. */
export type NodeLookup = store.Node | 'unknown' | 'ambiguous';

/** Each request of a user or client reads the groups of its organization. */
const MAX_GROUPS = 500;
const DELETE_BATCH = 500;

export class Organizations {
  readonly #database: Database;
  /** The documents of each kind, by the plural of its name. */
  readonly documents;

  constructor({ database, random }: { database: Database; random: Random }) {
    this.#database = database;
    const ports = { buckets: new BucketStore({ database }), random };
    this.documents = {
      organizations: new Documents(organizations, ports),
      users: new Documents(users, { ...ports, check: (after, before) => this.#checkUser(after, before) }),
      clients: new Documents(clients, { ...ports, check: (after, before) => this.#checkOwned(after, before) }),
      groups: new Documents(groups, { ...ports, check: (after, before) => this.#checkGroup(after, before) }),
      bindings: new Documents(bindings, { ...ports, check: (after, before) => this.#checkBinding(after, before) }),
      keys: new Documents(keys, { ...ports, check: (after, before) => this.#checkKey(after, before) }),
    };
  }

  /** Creates the buckets. Call it after the migrations. */
  async prepare(): Promise<void> {
    for (const documents of Object.values(this.documents)) await documents.prepare();
  }

  /** @throws OrganizationNotFoundError */
  async organization(name: string): Promise<Organization> {
    const isName = organizations.fields.name.safeParse(name).success;
    const { objects } = isName
      ? await this.documents.organizations.list({ name }, { limit: 1, after: undefined })
      : { objects: [] };
    const [found] = objects;
    if (found === undefined) throw new OrganizationNotFoundError(name);
    return found.value as Organization;
  }

  /** The server that each name stands for. */
  async nodesOf({ uuid }: Pick<Organization, 'uuid'>, names: readonly string[]): Promise<Map<string, NodeLookup>> {
    const result = new Map<string, NodeLookup>(names.map((name) => [name, 'unknown']));
    for (const node of await store.findNodes(this.#database, uuid, names))
      result.set(node.name, result.get(node.name) === 'unknown' ? node : 'ambiguous');
    return result;
  }

  /** In order of name; names may occur twice. */
  allNodes({ uuid }: Pick<Organization, 'uuid'>): Promise<store.Node[]> {
    return store.readNodes(this.#database, uuid);
  }

  /** Deletes some of what belongs to organizations, owners or servers that no longer exist. */
  deleteOrphans(): Promise<number> {
    return store.deleteOrphans(this.#database, DELETE_BATCH);
  }

  async #checkUser(after: Fields, before: Fields | undefined): Promise<void> {
    await this.#requireNew('organizations', after, before);
  }

  async #checkOwned(after: Fields, before: Fields | undefined): Promise<void> {
    refuseMove(after, before, 'organization');
    if (before === undefined) await this.#require('organization', after, [this.documents.organizations]);
  }

  async #checkGroup(after: Fields, before: Fields | undefined): Promise<void> {
    await this.#checkOwned(after, before);
    for (const kind of ['users', 'clients', 'groups'] as const) await this.#requireNew(kind, after, before);
    if (before === undefined)
      await this.#requireRoom(this.documents.groups, { organization: after.organization }, MAX_GROUPS);
  }

  async #checkBinding(after: Fields, before: Fields | undefined): Promise<void> {
    await this.#checkOwned(after, before);
    await this.#requireNew('groups', after, before);
    refuseMove(after, before, 'server_uuid');
    if (before === undefined && !(await store.isServer(this.#database, String(after.server_uuid))))
      throw new InvalidArgumentError(`There is no server ${after.server_uuid}`);
  }

  async #checkKey(after: Fields, before: Fields | undefined): Promise<void> {
    refuseMove(after, before, 'owner');
    if (after.public_key !== before?.public_key) checkPublicKey(String(after.public_key));
    if (before !== undefined) return;
    await this.#require('owner', after, [this.documents.users, this.documents.clients]);
    await this.#requireRoom(this.documents.keys, { owner: after.owner }, MAX_KEYS_PER_OWNER);
  }

  /** The object that a field names may be deleted at the same time; then `deleteOrphans` follows. */
  async #require(field: string, fields: Fields, kinds: readonly Documents[]): Promise<void> {
    const uuid = String(fields[field]);
    for (const kind of kinds) if ((await kind.getMany([uuid])).size > 0) return;
    throw new InvalidArgumentError(`There is no ${kinds.map(({ noun }) => noun.name).join(' or ')} ${uuid}`);
  }

  /** What a list names in addition must exist, in the same organization. */
  async #requireNew(
    kind: 'organizations' | 'users' | 'clients' | 'groups',
    after: Fields,
    before: Fields | undefined,
  ): Promise<void> {
    const had = new Set((before?.[kind] ?? []) as string[]);
    const added = ((after[kind] ?? []) as string[]).filter((uuid) => !had.has(uuid));
    if (added.length === 0) return;
    const found = await this.documents[kind].getMany(added);
    const isOfAnother = ({ organization = after.organization }: Fields) => organization !== after.organization;
    const missing = added.find((uuid) => isOfAnother(found.get(uuid) ?? { organization: null }));
    if (missing !== undefined)
      throw new InvalidArgumentError(`There is no ${this.documents[kind].noun.name} ${missing}`);
  }

  /** Creations at the same time may exceed the maximum. */
  async #requireRoom(kind: Documents, fields: Fields, maximum: number): Promise<void> {
    const { objects } = await kind.list(fields, { limit: maximum, after: undefined });
    if (objects.length >= maximum)
      throw new InvalidArgumentError(`There are ${maximum} ${kind.noun.plural} already, the most that there may be`);
  }
}

/** @throws InvalidArgumentError */
function refuseMove(after: Fields, before: Fields | undefined, field: string): void {
  if (before !== undefined && after[field] !== before[field])
    throw new InvalidArgumentError(`The ${field} cannot change; delete this and create another one`);
}
