import t from 'tap';
import { canonicalJson, digestOf } from '../../../lib/protocol/json/canonical-json.ts';

t.test('equal values have the same text, whatever the order of their keys', async (t) => {
  t.equal(canonicalJson({ b: [1, { d: 1, c: undefined }], a: 'x' }), '{"a":"x","b":[1,{"d":1}]}');
  t.equal(canonicalJson({ '10': 1, '9': 2, a: 3, '#': 4 }), '{"#":4,"10":1,"9":2,"a":3}', 'also keys that are numbers');
  t.equal(digestOf({ a: 1, b: { c: 2, d: [1, 2] } }), digestOf({ b: { d: [1, 2], c: 2 }, a: 1 }));
  t.not(digestOf({ a: [1, 2] }), digestOf({ a: [2, 1] }), 'the order of an array matters');
});

t.test('the digest of a sysinfo equals the one of agents and instances of 0.1', async (t) => {
  const sysinfo = {
    UUID: 'x',
    Hostname: 'headnode',
    'Network Interfaces': { net0: { ip4addr: '10.0.0.1', 'NIC Names': ['admin'] } },
    'Boot Time': 1,
    'Live Image': null,
    Setup: 'true',
    'CPU Load': 0.5,
  };
  t.equal(digestOf(sysinfo), '13751c616ae35da17a85459876164bcc0fedf2a9038413a97c1956abacba2009');
});
