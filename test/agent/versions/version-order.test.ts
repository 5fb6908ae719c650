import t from 'tap';
import { compareVersions, PACKAGE_VERSION } from '../../../lib/agent/versions/version-order.ts';

t.test('versions are in the order of Semantic Versioning', (t) => {
  // Section 11 of the specification has this order.
  const ordered = ['0.9.9', '1.0.0-alpha', '1.0.0-alpha.1', '1.0.0-alpha.beta', '1.0.0-beta', '1.0.0-beta.2'];
  ordered.push('1.0.0-beta.11', '1.0.0-rc.1', '1.0.0', '1.0.1', '1.2.0', '1.10.0', '2.0.0');
  for (const [index, version] of ordered.entries()) {
    t.match(version, PACKAGE_VERSION);
    for (const [other, against] of ordered.entries())
      t.equal(Math.sign(compareVersions(version, against)), Math.sign(index - other), `${version} and ${against}`);
  }
  t.end();
});

t.test('what is not a version of a package is not one', (t) => {
  for (const text of ['1', '1.2', '01.2.3', '1.2.3+build', '1.2.3-', '1.2.3-a..b', '../1.2.3', '1.2.3-a/b', '1.2.3\n'])
    t.notMatch(text, PACKAGE_VERSION, JSON.stringify(text));
  t.end();
});
