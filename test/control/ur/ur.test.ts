import t from 'tap';
import type { StatusReason } from '../../../lib/control/roster/status/authority-row.ts';
import { mayChange, readUrMessage } from '../../../lib/control/ur/ur.ts';

const UUID = '564d4d22-0b45-4b2a-9f0e-1f1d3c6a7b10';
const OTHER = '564d4d22-0b45-4b2a-9f0e-1f1d3c6a7b11';
const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));

const messages = [
  {
    name: 'a sysinfo of Ur has an id after the uuid',
    key: `ur.sysinfo.${UUID}.5f1c`,
    content: bytes({ UUID, Setup: false }),
    expect: { kind: 'sysinfo', serverUuid: UUID, sysinfo: { UUID, Setup: false } },
  },
  {
    name: 'the start of Ur has none',
    key: `ur.startup.${UUID}`,
    content: bytes({ UUID }),
    expect: { kind: 'startup', serverUuid: UUID, sysinfo: { UUID } },
  },
  {
    name: 'a uuid may be in upper case',
    key: `ur.sysinfo.${UUID.toUpperCase()}`,
    content: bytes({ UUID: UUID.toUpperCase() }),
    expect: { serverUuid: UUID },
  },
  {
    name: 'a reply is not a message for the shared queue',
    key: `ur.execute-reply.${UUID}.1`,
    content: bytes({ UUID }),
    expect: { defect: 'routing-key' },
  },
  {
    name: 'a routing key without a uuid',
    key: 'ur.sysinfo',
    content: bytes({ UUID }),
    expect: { defect: 'routing-key' },
  },
  {
    name: 'no uuid but a path',
    key: 'ur.sysinfo.default',
    content: bytes({ UUID }),
    expect: { defect: 'routing-key' },
  },
  {
    name: 'the sysinfo of another server',
    key: `ur.sysinfo.${OTHER}`,
    content: bytes({ UUID }),
    expect: { defect: 'wrong-uuid' },
  },
  { name: 'no JSON', key: `ur.sysinfo.${UUID}`, content: Buffer.from('{"UUID":'), expect: { defect: 'not-json' } },
  { name: 'a list', key: `ur.sysinfo.${UUID}`, content: bytes([UUID]), expect: { defect: 'not-a-sysinfo' } },
  { name: 'no uuid in the body', key: `ur.sysinfo.${UUID}`, content: bytes({}), expect: { defect: 'not-a-sysinfo' } },
  {
    name: 'more than a megabyte is not parsed',
    key: `ur.sysinfo.${UUID}`,
    content: Buffer.alloc(1024 * 1024 + 1, '{'),
    expect: { defect: 'too-large' },
  },
  {
    name: 'too many values are not parsed',
    key: `ur.sysinfo.${UUID}`,
    content: Buffer.from(`{"UUID":"${UUID}","x":[${'0,'.repeat(400_000)}0]}`),
    expect: { defect: 'too-complex' },
  },
];

for (const { name, key, content, expect } of messages)
  t.test(`message: ${name}`, async (t) => {
    const read = readUrMessage(key, content);
    t.match(read, expect);
  });

const rows: { name: string; isSetup?: boolean; reason?: StatusReason; may: boolean }[] = [
  { name: 'a new server', may: true },
  { name: 'a server whose first message was stored, and not counted', isSetup: false, may: true },
  { name: 'a server that an operator removed', reason: 'removed', may: true },
  { name: 'a server by Ur', isSetup: false, reason: 'ur-sysinfo', may: true },
  { name: 'a server whose Ur fell silent', isSetup: false, reason: 'ur-silent', may: true },
  { name: 'a server by Ur that is set up', isSetup: true, reason: 'ur-sysinfo', may: false },
  { name: 'a server that is set up and has no row', isSetup: true, may: false },
  { name: 'a server whose agent is connected', isSetup: true, reason: 'connected', may: false },
  { name: 'a server of a legacy agent', isSetup: true, reason: 'legacy-heartbeat', may: false },
  ...(
    ['silent', 'closed', 'session-lost', 'instance-lost', 'legacy-silent', 'protocol-error'] as StatusReason[]
  ).flatMap((reason) => [
    { name: `a server that is set up and was lost, ${reason},`, isSetup: true, reason, may: false },
    { name: `a server that had an agent and is not set up, ${reason},`, isSetup: false, reason, may: false },
  ]),
];

for (const { name, isSetup, reason, may } of rows)
  t.test(`${name} ${may ? 'may' : 'must not'} be changed by a message`, async (t) => {
    t.equal(mayChange(isSetup === undefined ? undefined : { setup: isSetup }, reason && { reason }), may);
  });
