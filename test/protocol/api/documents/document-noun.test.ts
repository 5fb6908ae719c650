import t from 'tap';
import { text } from '../../../../lib/protocol/api/contract/rules.ts';
import { documentNoun, withArticle } from '../../../../lib/protocol/api/documents/document-noun.ts';

const declaration = {
  name: 'disk_image',
  plural: 'disk_images',
  about: 'Images of disks',
  fields: { name: text() },
  indexes: { name: 'string' },
  version: 1,
  eventFields: [],
  listColumns: [],
} as const;

t.test('a declaration makes five contracts with names and paths of their own', async (t) => {
  const { contracts } = documentNoun(declaration);
  t.same(
    Object.values(contracts).map(({ name, method, path }) => `${name} ${method} ${path}`),
    [
      'ListDiskImages GET /disk_images',
      'GetDiskImage GET /disk_images/:uuid',
      'CreateDiskImage POST /disk_images',
      'UpdateDiskImage POST /disk_images/:uuid',
      'DeleteDiskImage DELETE /disk_images/:uuid',
    ],
  );
});

t.test('names that are taken or cannot name a table are refused', async (t) => {
  for (const name of ['task', 'gap', 'Image', 'a b', ''])
    t.throws(() => documentNoun({ ...declaration, name }), TypeError, name);
  for (const field of ['uuid', 'limit', 'after'])
    t.throws(() => documentNoun({ ...declaration, fields: { [field]: text() }, indexes: {} }), TypeError, field);
});

t.test('a name follows the article of its first sound', async (t) => {
  for (const phrase of ['a thing', 'a user', 'an image', 'an organization', 'an upload'])
    t.equal(withArticle(phrase.replace(/^an? /, '')), phrase);
});
