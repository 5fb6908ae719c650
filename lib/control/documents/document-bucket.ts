/** The bucket of a noun, for the noun itself and for those who read it. */
import { type DocumentBucket, documentBucket } from '../../platform/moray/bucket.ts';
import type { DocumentNoun } from '../../protocol/api/documents/document-noun.ts';

export function buildBucket({
  name,
  plural,
  version,
  indexes,
  unique = [],
  uniqueTogether = [],
  eventFields,
  serverField = '',
}: DocumentNoun): DocumentBucket {
  return documentBucket({
    name: `cnapi_${plural}`,
    version,
    indexes: Object.fromEntries(
      Object.entries(indexes).flatMap(([field, type]) =>
        type === undefined ? [] : [[field, { type, unique: unique.includes(field) }]],
      ),
    ),
    uniqueTogether,
    onChange: { name: 'cnapi_log_document_event', arguments: [name, serverField, 'uuid', ...eventFields] },
  });
}
