/**
 * Named groups of servers, for which push jobs can be created: a list of servers, or conditions.
 */
import { boundedText, serverConditions, text, uuidArray } from '../contract/rules.ts';
import { type Document, documentNoun } from './document-noun.ts';

const MAX_SERVERS = 5_000;

export const serverGroups = documentNoun({
  name: 'server_group',
  plural: 'server_groups',
  command: 'group',
  about: 'Named groups of servers, for which push jobs can be created',
  fields: {
    name: text().regex(/^[A-Za-z0-9_.-]{1,100}$/, 'value is not 1 to 100 letters, digits and . _ -'),
    servers: uuidArray(MAX_SERVERS).optional().describe('Uuids of its servers; or else `where`'),
    where: serverConditions()
      .optional()
      .describe('The servers of the group meet all of these conditions, whenever the group is used'),
    description: boundedText(500).optional(),
  },
  indexes: { name: 'string' },
  unique: ['name'],
  version: 1,
  eventFields: ['name'],
  serverLists: ['servers'],
  listColumns: ['name', 'where', 'servers'],
  createExamples: ['name=web servers=web-1,web-2', `name=web 'where=["hostname=web-*", "status=running"]'`],
});

export type ServerGroup = Document<typeof serverGroups>;
