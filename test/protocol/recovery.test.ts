import t from 'tap';
import { deriveRecoveryUuid, templateDigest } from '../../lib/protocol/recovery.ts';

t.test('the uuid of a configuration is its digest in the form of version 5', async (t) => {
  t.equal(deriveRecoveryUuid('0123456789abcdef0123456789abcdef'), '01234567-89ab-5def-8123-456789abcdef');
  t.equal(deriveRecoveryUuid('f'.repeat(128)), 'ffffffff-ffff-5fff-bfff-ffffffffffff');
  t.equal(deriveRecoveryUuid('0'.repeat(128)), '00000000-0000-5000-8000-000000000000');
  const digest = templateDigest('abc');
  t.match(digest, /^ddaf35a193617abacc417349ae204131.{96}$/, 'the SHA-512 of FIPS 180-2, C.1');
  t.equal(deriveRecoveryUuid(digest), 'ddaf35a1-9361-5aba-8c41-7349ae204131');
});
