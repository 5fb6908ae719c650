/**
 * Organizations as the rest of the instance sees them: who may act in one, and which servers it
 * has. Nothing is cached: a change counts for the next request at any instance.
 */

import { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import {
  type Binding,
  bindings,
  clients,
  type Group,
  groups,
  type Key,
  keys,
  MAX_KEYS_PER_OWNER,
  type Organization,
  organizations,
  type User,
  users,
} from '../../protocol/api/documents/organizations.ts';
import type { Actor } from '../access/token.ts';
import { TooManyDocumentsError } from '../documents/document-errors.ts';
import { Documents } from '../documents/documents.ts';
import { InvalidArgumentError } from '../request-errors.ts';
import { checkPublicKey } from './key-material.ts';
import { OrganizationNotFoundError } from './organization-errors.ts';
import * as store from './organization-store.ts';
import { ADMINS, neededGroups, READERS, type Requestor, WRITERS } from './requestor.ts';

/** `ambiguous`: several servers of the organization have this hostname. */
export type NodeLookup = store.OrganizationNode | 'unknown' | 'ambiguous';

/** A document that belongs to one organization. */
type Owned = Pick<Group, 'organization'>;

/** Limits the groups of an organization, because the sender of a request may be in all of them. */
const MAX_GROUPS = 500;
const DELETE_BATCH = 500;

export const isOrganizationName = (name: string): boolean => organizations.fields.name.safeParse(name).success;

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

  /** Creates the buckets and their index. Call it after the migrations. */
  async prepare(): Promise<void> {
    for (const documents of Object.values(this.documents)) await documents.prepare();
    await store.ensureMemberIndex(this.#database);
  }

  /** @throws OrganizationNotFoundError */
  async organization(name: string): Promise<Organization> {
    const { objects } = isOrganizationName(name)
      ? await this.documents.organizations.list({ name }, { limit: 1, after: undefined })
      : { objects: [] };
    const [found] = objects;
    if (found === undefined) throw new OrganizationNotFoundError(name);
    return found.value;
  }

  /**
   * What the caller may do in an organization.
   * @throws OrganizationNotFoundError
   */
  async requestor(actor: Actor, organizationName: string): Promise<Requestor & { organization: Organization }> {
    const organization = await this.organization(organizationName);
    const { principal } = actor;
    if (principal === undefined) {
      const needs = neededGroups(new Set());
      return { name: actor.name, kind: 'token', groups: new Set(), needs, actor, organization };
    }
    const { kind, name, uuid } = principal;
    const where = { organizationUuid: organization.uuid, kind, uuid };
    const { memberOf, existing } = await store.readGroups(this.#database, where, [READERS, WRITERS, ADMINS]);
    return { name, kind, groups: new Set(memberOf), needs: neededGroups(new Set(existing)), actor, organization };
  }

  /** Returns the uuids that are organizations. */
  async existing(uuids: readonly string[]): Promise<ReadonlySet<string>> {
    return new Set((await this.documents.organizations.getMany(uuids)).keys());
  }

  /** The server that each name stands for. */
  async nodesOf({ uuid }: Pick<Organization, 'uuid'>, names: readonly string[]): Promise<Map<string, NodeLookup>> {
    const result = new Map<string, NodeLookup>(names.map((name) => [name, 'unknown']));
    for (const node of await store.findNodes(this.#database, uuid, names))
      result.set(node.name, result.get(node.name) === 'unknown' ? node : 'ambiguous');
    return result;
  }

  /** Returns the nodes in order of name. Two nodes may have the same name. */
  allNodes({ uuid }: Pick<Organization, 'uuid'>): Promise<store.OrganizationNode[]> {
    return store.readNodes(this.#database, uuid);
  }

  /** Deletes some of what belongs to organizations, owners or servers that no longer exist. */
  deleteOrphans(): Promise<number> {
    return store.deleteOrphans(this.#database, DELETE_BATCH);
  }

  async #checkUser(after: User, before: User | undefined): Promise<void> {
    await this.#checkAllExist('organizations', added(after.organizations, before?.organizations));
  }

  async #checkOwned(after: Owned, before: Owned | undefined): Promise<void> {
    checkNotMoved('organization', after.organization, before?.organization);
    if (before === undefined) await this.#require(after.organization, [this.documents.organizations]);
  }

  async #checkGroup(after: Group, before: Group | undefined): Promise<void> {
    await this.#checkOwned(after, before);
    const { organization: organizationUuid } = after;
    for (const kind of ['users', 'clients', 'groups'] as const)
      await this.#checkAllExist(kind, added(after[kind], before?.[kind]), organizationUuid);
    if (before === undefined)
      await this.#checkRoom(this.documents.groups, { organization: organizationUuid }, MAX_GROUPS);
  }

  async #checkBinding(after: Binding, before: Binding | undefined): Promise<void> {
    await this.#checkOwned(after, before);
    await this.#checkAllExist('groups', added(after.groups, before?.groups), after.organization);
    checkNotMoved('server_uuid', after.server_uuid, before?.server_uuid);
    if (before === undefined && !(await store.isServer(this.#database, after.server_uuid)))
      throw new InvalidArgumentError(`There is no server ${after.server_uuid}`);
  }

  async #checkKey(after: Key, before: Key | undefined): Promise<void> {
    checkNotMoved('owner', after.owner, before?.owner);
    if (after.public_key !== before?.public_key) checkPublicKey(after.public_key);
    if (before !== undefined) return;
    await this.#require(after.owner, [this.documents.users, this.documents.clients]);
    await this.#checkRoom(this.documents.keys, { owner: after.owner }, MAX_KEYS_PER_OWNER);
  }

  /** The object that is required may be deleted at the same time; then `deleteOrphans` follows. */
  async #require(uuid: string, kinds: readonly Documents[]): Promise<void> {
    for (const kind of kinds) if ((await kind.getMany([uuid])).size > 0) return;
    throw new InvalidArgumentError(`There is no ${kinds.map(({ noun }) => noun.name).join(' or ')} ${uuid}`);
  }

  /**
   * Requires that all of them exist, and that those which belong to an organization belong to this
   * one.
   */
  async #checkAllExist(
    kind: 'organizations' | 'users' | 'clients' | 'groups',
    uuids: readonly string[],
    organizationUuid?: string,
  ): Promise<void> {
    if (uuids.length === 0) return;
    const found: ReadonlyMap<string, Partial<Owned> & { uuid: string }> = await this.documents[kind].getMany(uuids);
    const missing = uuids.find((uuid) => {
      const one = found.get(uuid);
      return one === undefined || (one.organization !== undefined && one.organization !== organizationUuid);
    });
    if (missing !== undefined)
      throw new InvalidArgumentError(`There is no ${this.documents[kind].noun.name} ${missing}`);
  }

  /** Requires room for one more document. Creations at the same time may exceed the maximum. */
  async #checkRoom(kind: Documents, fields: Record<string, string>, maximum: number): Promise<void> {
    const { objects } = await kind.list(fields, { limit: maximum, after: undefined });
    if (objects.length >= maximum) throw new TooManyDocumentsError(kind.noun.plural, maximum);
  }
}

/** The entries that the list did not have before. */
function added(after: readonly string[] = [], before: readonly string[] = []): string[] {
  const had = new Set(before);
  return after.filter((uuid) => !had.has(uuid));
}

/** `before`: undefined for a new document. @throws InvalidArgumentError */
function checkNotMoved(field: string, after: string, before: string | undefined): void {
  if (before !== undefined && after !== before)
    throw new InvalidArgumentError(`The ${field} cannot change; delete this and create another one`);
}
