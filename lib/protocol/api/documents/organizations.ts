/**
 * Organizations, who may act in them, and their servers. Users belong to any number of
 * organizations; clients, groups and bindings of servers belong to one. Users and clients sign
 * their requests with keys. Each of these is a noun of documents; docs/organizations.md shows how
 * they are used.
 */
import { z } from 'zod';
import { answer, contracts, errorResponse } from '../contract/contract.ts';
import { boundedText, text, textArray, timestamp, uuid, uuidArray } from '../contract/rules.ts';
import { type Document, documentNoun } from './document-noun.ts';

/** Limits each list of a group, and the list of a user's organizations. */
const MAX_MEMBERS = 1000;
const MAX_COMMANDS = 1000;
/** A key of 8192 bits has 1,500 characters; a certificate may have more. */
const MAX_PEM_CHARS = 8192;
const MAX_KEYS = 10;

export { MAX_KEYS as MAX_KEYS_PER_OWNER };

const organizationName = () =>
  text().regex(
    /^[a-z0-9][a-z0-9_-]{0,254}$/,
    'value is not 1 to 255 lower-case letters, digits, _ and -, beginning with a letter or digit',
  );

/** The name of a user or client is sent in headers and signed as it is. */
const principalName = () =>
  text().regex(/^[A-Za-z0-9_.@:-]{1,150}$/, 'value is not 1 to 150 letters, digits and . _ @ : -');

const plainName = () => text().regex(/^[A-Za-z0-9_.-]{1,255}$/, 'value is not 1 to 255 letters, digits and . _ -');

const own = { changesNeed: 'admin', hasOwnCommands: true } as const;

const organizationNoun = documentNoun({
  ...own,
  name: 'organization',
  plural: 'organizations',
  about: 'Organizations, which own push jobs and to which servers are bound',
  fields: {
    name: organizationName(),
    full_name: boundedText(255).optional(),
    allowed_commands: textArray(MAX_COMMANDS)
      .optional()
      .describe(
        'The commands that its push jobs may run: whole, or their beginning and `*`; any command when absent. Agents may have lists of their own',
      ),
  },
  indexes: { name: 'string' },
  unique: ['name'],
  version: 1,
  eventFields: ['name'],
  listColumns: ['name', 'full_name'],
});

const userNoun = documentNoun({
  ...own,
  name: 'user',
  plural: 'users',
  about: 'People and tools that sign their requests with keys, in all organizations that name them',
  fields: {
    name: principalName(),
    organizations: uuidArray(MAX_MEMBERS).default([]).describe('Uuids of the organizations in which it may act'),
  },
  indexes: { name: 'string' },
  unique: ['name'],
  version: 1,
  eventFields: ['name'],
  listColumns: ['name', 'organizations'],
});

const ofOrganization = { organization: uuid().describe('Uuid of its organization') };

export const clients = documentNoun({
  ...own,
  name: 'client',
  plural: 'clients',
  about: 'Programs of one organization that sign their requests with keys',
  fields: { ...ofOrganization, name: principalName() },
  indexes: { organization: 'uuid', name: 'string' },
  uniqueTogether: [['organization', 'name']],
  version: 1,
  eventFields: ['organization', 'name'],
  listColumns: ['name', 'organization'],
});

const groupNoun = documentNoun({
  ...own,
  name: 'group',
  plural: 'groups',
  isLimited: true,
  about: 'Groups of users, clients and other groups of one organization',
  fields: {
    ...ofOrganization,
    name: plainName(),
    users: uuidArray(MAX_MEMBERS).default([]),
    clients: uuidArray(MAX_MEMBERS).default([]),
    groups: uuidArray(MAX_MEMBERS).default([]).describe('Their members are members of this group, too'),
  },
  indexes: { organization: 'uuid', name: 'string' },
  uniqueTogether: [['organization', 'name']],
  version: 1,
  eventFields: ['organization', 'name'],
  listColumns: ['name', 'organization'],
});

export const bindings = documentNoun({
  ...own,
  name: 'binding',
  plural: 'bindings',
  about: 'Which servers belong to which organizations, and who may run push jobs on them',
  fields: {
    ...ofOrganization,
    server_uuid: uuid(),
    groups: uuidArray(MAX_MEMBERS)
      .optional()
      .describe('Only their members may run push jobs on the server; when absent, everybody who may create push jobs'),
  },
  indexes: { organization: 'uuid', server_uuid: 'uuid' },
  uniqueTogether: [['organization', 'server_uuid']],
  version: 1,
  eventFields: ['organization', 'server_uuid'],
  serverField: 'server_uuid',
  listColumns: ['organization', 'server_uuid', 'groups'],
});

const publicKey = () =>
  boundedText(MAX_PEM_CHARS).describe('An RSA key of 2048 to 8192 bits as PEM, or a certificate that has one');

const keyNoun = documentNoun({
  ...own,
  name: 'key',
  plural: 'keys',
  isLimited: true,
  about: 'Public keys, with which signatures of users and clients are checked',
  fields: {
    owner: uuid().describe('Uuid of its user or client'),
    name: plainName().default('default'),
    public_key: publicKey(),
    expires_at: timestamp().describe(
      'ISO 8601 with an offset, or a date; not valid from then on; always valid when absent',
    ),
  },
  indexes: { owner: 'uuid', name: 'string' },
  uniqueTogether: [['owner', 'name']],
  version: 1,
  eventFields: ['owner', 'name'],
  listColumns: ['name', 'owner', 'expires_at'],
});

const { create } = keyNoun.contracts;

export const keys = {
  ...keyNoun,
  contracts: {
    ...keyNoun.contracts,
    create: {
      ...create,
      summary: `Creates a key, at most ${MAX_KEYS} for each owner. Without public_key the instance makes a pair and shows the private key once`,
      params: create.params.extend({
        public_key: publicKey().optional().describe('When absent, the instance makes a pair of 2048 bits'),
      }),
      responses: {
        ...create.responses,
        201: {
          description: 'Created',
          schema: answer({
            ...keyNoun.document.shape,
            private_key: z.string().optional().describe('As PEM; in this answer only, and stored nowhere'),
          }).meta({ id: 'CreatedKey' }),
          headers: { ...create.responses[201]?.headers, 'Cache-Control': '`no-store`' },
        },
      },
    },
  },
};

const change = z.enum(['add', 'remove'], 'value is neither add nor remove');

const { name: _ofUser, ...userUpdate } = userNoun.contracts.update;
const { name: _ofGroup, ...groupUpdate } = groupNoun.contracts.update;

/** Change one list by adding or removing, so that simultaneous changes do not undo each other. */
export const listContracts = contracts({
  ChangeUserOrganizations: {
    ...userUpdate,
    path: '/users/:uuid/organizations',
    summary: 'Adds a user to organizations, or removes it from them; repeating it is harmless',
    params: z.object({ uuid: uuid().describe('Uuid of the user'), change, organizations: uuidArray(MAX_MEMBERS) }),
  },
  ChangeGroupMembers: {
    ...groupUpdate,
    path: '/groups/:uuid/members',
    summary: 'Adds members to a group, or removes them; repeating it is harmless',
    params: z.object({
      uuid: uuid().describe('Uuid of the group'),
      change,
      users: uuidArray(MAX_MEMBERS).default([]),
      clients: uuidArray(MAX_MEMBERS).default([]),
      groups: uuidArray(MAX_MEMBERS).default([]),
    }),
  },
});

const { ChangeUserOrganizations, ChangeGroupMembers } = listContracts;

const { name: _ofOrganization, ...organizationGet } = organizationNoun.contracts.get;

export const requestorContracts = contracts({
  GetRequestor: {
    ...organizationGet,
    path: '/organizations/:organization/requestor',
    summary: 'Who sends this request, signed or with a token, and what that permits in the organization',
    signed: true,
    params: z.object({ organization: text().describe('The name of the organization') }),
    requestHeaders: {
      'X-Ops-Sign': 'And the other headers of a signed request (docs/organizations.md), in place of a token',
    },
    responses: {
      200: {
        description: 'OK',
        schema: answer({
          name: z.string(),
          kind: z.enum(['user', 'client', 'token']),
          groups: z.array(z.string()).describe('The groups that it belongs to, also by way of other groups'),
          may_read: z.boolean().describe('Push jobs, their output and the states of nodes'),
          may_write: z.boolean().describe('Create and change push jobs'),
        }).meta({ id: 'Requestor' }),
      },
      400: errorResponse('Headers of a signature are missing, or its version is unknown', 'BadSignatureHeaders'),
      403: errorResponse('The user belongs only to other organizations', 'Forbidden'),
      404: errorResponse('No such organization', 'ResourceNotFound'),
    },
  },
});

const { GetRequestor } = requestorContracts;

export const organizations = { ...organizationNoun, further: { GetRequestor } };
export const users = { ...userNoun, further: { ChangeUserOrganizations } };
export const groups = { ...groupNoun, further: { ChangeGroupMembers } };

export type Organization = Document<typeof organizations>;
export type User = Document<typeof users>;
export type Client = Document<typeof clients>;
export type Group = Document<typeof groups>;
export type Binding = Document<typeof bindings>;
export type Key = Document<typeof keys>;
