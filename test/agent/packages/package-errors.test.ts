/** Errors of images, as the tasks of packages say them. */
import t from 'tap';
import { LayerError } from '../../../lib/agent/containers/layers/layer-error.ts';
import {
  ImageSourceError,
  ImageSourceNotAllowedError,
  InvalidImageError,
  NoImageSpaceError,
} from '../../../lib/agent/images/image-errors.ts';
import { toPackageError, UntrustedPackageError } from '../../../lib/agent/packages/package-errors.ts';

const full = (code: string) => Object.assign(new Error(`${code}: no space`), { code });
const SPACE = { code: 'NoPackageSpace', statusCode: 507, message: /^The disk has no room for this package; / };

const rows: [name: string, error: Error, translated: { code: string; statusCode: number; message: string | RegExp }][] =
  [
    [
      'a wrong archive',
      new InvalidImageError('its archive is refused: it is cut off'),
      {
        code: 'InvalidPackage',
        statusCode: 422,
        message: 'The package is refused: its archive is refused: it is cut off',
      },
    ],
    [
      'a wrong layer',
      new LayerError('it is cut off'),
      { code: 'InvalidPackage', statusCode: 422, message: 'The package is refused: it is cut off' },
    ],
    [
      'a source that is not allowed',
      new ImageSourceNotAllowedError('url: h is not allowed; add --image-url or --image-path'),
      {
        code: 'PackageSourceNotAllowed',
        statusCode: 403,
        message: 'package_file: h is not allowed; add --package-url or --package-path',
      },
    ],
    [
      'a source that fails',
      new ImageSourceError('http://h/url: it answered 404'),
      { code: 'PackageSourceFailed', statusCode: 502, message: 'http://h/url: it answered 404' },
    ],
    ['no space for the archive', new NoImageSpaceError('The disk has no room for this image'), SPACE],
    ['a full disk', full('ENOSPC'), SPACE],
    ['a full quota', new Error('cannot write', { cause: full('EDQUOT') }), SPACE],
  ];

for (const [name, error, translated] of rows)
  t.test(`${name} is said in words of packages, with its cause`, async (t) => {
    const found = toPackageError(error);
    t.match(found, translated);
    t.match(found, { cause: Error });
    t.notMatch((found as Error).message, /image|layer/);
  });

t.test('other errors stay as they are', async (t) => {
  for (const error of [new UntrustedPackageError(), full('EIO'), 'text']) t.equal(toPackageError(error), error);
});
