/** Maps what users write to the users and clients of organizations. */
import type { CnapiClient } from '../../client/client.ts';
import {
  type Client,
  clients,
  type Group,
  groups,
  type Organization,
  organizations,
  type User,
  users,
} from '../../protocol/api/documents/organizations.ts';
import { findDocument } from './find-document.ts';

export const findOrganization = (client: CnapiClient, name: string): Promise<Organization> =>
  findDocument(client, organizations, name);

export const findUser = (client: CnapiClient, name: string): Promise<User> => findDocument(client, users, name);

export const findClient = (client: CnapiClient, { uuid }: Organization, name: string): Promise<Client> =>
  findDocument(client, clients, name, { within: { organization: uuid } });

export const findGroup = (client: CnapiClient, { uuid }: Organization, name: string): Promise<Group> =>
  findDocument(client, groups, name, { within: { organization: uuid }, what: 'group of users and clients' });

export interface MemberNames {
  user?: string[];
  client?: string[];
  group?: string[];
}

/** Finds the owner of a key, written as `USER` or `ORGANIZATION/CLIENT`. */
export async function findOwner(client: CnapiClient, text: string): Promise<User | Client> {
  const [organization = '', name] = text.split('/', 2);
  return name === undefined
    ? findUser(client, organization)
    : findClient(client, await findOrganization(client, organization), name);
}

/** The uuids of these members of a group. */
export async function findMembers(
  client: CnapiClient,
  organization: Organization,
  names: MemberNames,
): Promise<{ users: string[]; clients: string[]; groups: string[] }> {
  const uuidsOf = (given: string[] = [], find: (name: string) => Promise<{ uuid: string }>) =>
    Array.fromAsync(given, async (name) => (await find(name)).uuid);
  return {
    users: await uuidsOf(names.user, (name) => findUser(client, name)),
    clients: await uuidsOf(names.client, (name) => findClient(client, organization, name)),
    groups: await uuidsOf(names.group, (name) => findGroup(client, organization, name)),
  };
}
