/** What the part `cost` sends: generated inputs, and those that were found by hand. */
import fc from 'fast-check';
import { bytesOf } from './socket-steps.ts';

const KIB = 1024;
export const MIB = 1024 * KIB;

/**
 * JSON with as many values as its bytes allow, or otherwise expensive for its length. With `#`,
 * which stands for a number, they are the members of one object.
 */
const PIECES = [
  '[],',
  '{},',
  '0,',
  '"",',
  '{"":0},',
  '[[[[[[[[]]]]]]]],',
  '"\\u0041",',
  '1e-9,',
  'null,',
  '"k#":0,',
] as const;

export interface RequestInput {
  kind: 'request';
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  /** The parameter that holds the pieces. */
  field: string;
  piece: string;
  bytes: number;
  parallel: number;
}

export interface FramesInput {
  kind: 'frames';
  head: string;
  piece: string;
  bytes: number;
  count: number;
}

export interface FloodInput {
  kind: 'flood';
  frame: keyof typeof FLOODS;
  count: number;
}

/** Large lists, all requested at once, and read to their end when all have begun. */
export interface ListsInput {
  kind: 'lists';
  list: keyof typeof LISTS;
  parallel: number;
}

export type CostInput = RequestInput | FramesInput | FloodInput | ListsInput;

export const LISTS = {
  history: '/servers/{stocked}/task-history?limit=1000',
  servers: '/servers?extras=all',
};

const HEADS = [
  '{"type":"status","status":{"vms":',
  '{"type":"sysinfo","digest":"x","sysinfo":{"a":',
  '{"type":"task_end","id":"4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11","attempt":1,"outcome":"complete","reportedAt":"","result":{"a":',
  '{"type":"from-the-future","a":{"a":',
];

export const FLOODS = {
  pongs: bytesOf({ do: 'pong', payload: '' }, true),
  pings: bytesOf({ do: 'ping', payload: '' }, true),
  complaints: bytesOf({ do: 'text', text: '{"type":"error","code":"x","message":""}' }, true),
  'texts of an unknown type': bytesOf({ do: 'text', text: '{"type":"?"}' }, true),
};

const PATHS = [
  '/ping',
  '/servers',
  '/servers/{server}',
  '/servers/{server}/sysinfo',
  '/servers/{server}/events/status',
  '/servers/{server}/execute',
];
const FIELDS = ['a', 'args', 'env', 'sysinfo', 'traits', 'agents', 'params', 'extra'];

export const inputs: fc.Arbitrary<CostInput> = fc.oneof(
  fc.record({
    kind: fc.constant('request' as const),
    method: fc.constantFrom('GET' as const, 'POST' as const, 'PUT' as const, 'DELETE' as const),
    path: fc.constantFrom(...PATHS, '/servers/{server}/nop', '/servers/{server}/tickets', '/loglevel', '/tokens'),
    field: fc.constantFrom(...FIELDS),
    piece: fc.constantFrom(...PIECES),
    bytes: fc.constantFrom(20 * KIB, 200 * KIB, MIB - KIB),
    parallel: fc.integer({ min: 1, max: 4 }),
  }),
  fc.record({
    kind: fc.constant('frames' as const),
    head: fc.constantFrom(...HEADS),
    piece: fc.constantFrom(...PIECES),
    bytes: fc.constantFrom(100 * KIB, MIB, 4 * MIB, 8 * MIB - KIB),
    count: fc.integer({ min: 1, max: 4 }),
  }),
  fc.record({
    kind: fc.constant('flood' as const),
    frame: fc.constantFrom(...(Object.keys(FLOODS) as (keyof typeof FLOODS)[])),
    count: fc.constantFrom(10_000, 100_000, 500_000),
  }),
  fc.record({
    kind: fc.constant('lists' as const),
    list: fc.constantFrom(...(Object.keys(LISTS) as (keyof typeof LISTS)[])),
    parallel: fc.integer({ min: 1, max: 12 }),
  }),
);

const EXECUTE = { kind: 'request', method: 'POST', path: '/servers/{server}/execute' } as const;
const STATUS = { kind: 'request', method: 'POST', path: '/servers/{server}/events/status' } as const;

/** The cases that were found by hand, before costs were measured. */
export const FOUND: readonly CostInput[] = [
  { kind: 'request', method: 'GET', path: '/ping', field: 'a', piece: '[],', bytes: MIB - KIB, parallel: 1 },
  { kind: 'frames', head: HEADS[0] as string, piece: '[],', bytes: 8 * MIB - KIB, count: 4 },
  // Ends whose results have 119,000 members each.
  { kind: 'frames', head: HEADS[2] as string, piece: '"k#":0,', bytes: 1_100 * KIB, count: 4 },
  // Each element failed four times.
  { ...EXECUTE, field: 'args', piece: 'null,', bytes: 240 * KIB, parallel: 4 },
  { ...EXECUTE, field: 'env', piece: '"k#":[],', bytes: 240 * KIB, parallel: 4 },
  // One such post; how many an agent may send is limited with tokens only.
  { ...STATUS, field: 'vms', piece: '"k#":0,', bytes: 209 * KIB, parallel: 2 },
  { kind: 'flood', frame: 'pongs', count: 3_000_000 },
  { kind: 'lists', list: 'history', parallel: 12 },
  { kind: 'lists', list: 'servers', parallel: 6 },
];

/**
 * The report of an agent with some hundred VMs; it has no more values for its bytes than real ones.
 */
const VM = JSON.stringify({
  uuid: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  owner_uuid: '930896af-bf8c-48d4-885c-6573a94b1853',
  quota: 25,
  max_physical_memory: 1024,
  zone_state: 'running',
  state: 'running',
  brand: 'joyent-minimal',
  cpu_cap: 200,
  last_modified: '2026-01-01T00:00:00.000Z',
});
export const ORDINARY: FramesInput = {
  kind: 'frames',
  head: HEADS[0] as string,
  piece: `${VM},`,
  bytes: MIB,
  count: 2,
};

/** Pieces of about so many bytes: a list, or an object of numbered members. */
export function manyOf(piece: string, bytes: number): string {
  if (!piece.includes('#')) return `[${piece.repeat(Math.max(1, Math.floor(bytes / piece.length)))}0]`;
  const members: string[] = [];
  for (let length = 0; length < bytes; length += members.at(-1)?.length ?? 1)
    members.push(piece.replace('#', members.length.toString(36)));
  return `{${members.join('').slice(0, -1)}}`;
}
