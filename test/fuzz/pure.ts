/**
 * Parsers, fed in this process: the first code that reads data of unauthenticated peers. An input
 * is one text or message.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { ConfigError, loadConfig } from '../../lib/control/config.ts';
import type { Filter } from '../../lib/platform/moray/filter.ts';
import { filterCondition } from '../../lib/platform/moray/filter-sql.ts';
import { InvalidQueryError, NotIndexedError } from '../../lib/platform/moray/moray-errors.ts';
import { SqlParameters } from '../../lib/platform/postgres/sql-text.ts';
import { FrameError, parseAgentFrame, parseInstanceFrame } from '../../lib/protocol/link/codec.ts';
import { agentFrameTexts, instanceFrameTexts } from './frames.ts';
import { brokenJson, hostileJson, hostileName, hostileText, objectText } from './hostile.ts';
import { type Feeder, feeder, type Part, Wrong } from './part.ts';
import { takeVitals } from './probe.ts';

/**
 * The time limit of a parser for one text: a thousand times the slowest; beyond it, the machine is
 * frozen.
 */
const PARSE_WITHIN_MS = 20_000;

function pure<Value>(arbitrary: fc.Arbitrary<Value>, feed: (value: Value) => void, close = async () => {}): Feeder {
  return feeder<Value>({
    arbitrary,
    lanes: 1,
    feed(value) {
      const { user } = process.cpuUsage();
      feed(value);
      const ms = (process.cpuUsage().user - user) / 1000;
      if (ms > PARSE_WITHIN_MS) throw new Wrong(`parsing took ${ms} ms of CPU`, 'slow');
      return 1;
    },
    vitals: takeVitals,
    inspect: async () => [],
    close,
  });
}

/** Runs `work`; only errors of these kinds are valid results. */
function answered(work: () => unknown, ...kinds: (new (...parts: never[]) => Error)[]): unknown {
  try {
    return work();
  } catch (error) {
    if (kinds.some((kind) => error instanceof kind)) return undefined;
    throw error;
  }
}

export const codecPart: Part = {
  name: 'codec',
  about: 'texts for the parsers of frames, of both ends',
  share: 270,
  quick: 2_000,
  open: async () =>
    pure(fc.oneof(agentFrameTexts, instanceFrameTexts), (text) => {
      const before = Object.keys(Object.prototype).length;
      for (const parse of [parseAgentFrame, parseInstanceFrame]) answered(() => parse(text), FrameError);
      if (Object.keys(Object.prototype).length !== before) throw new Wrong('a frame changed Object.prototype');
    }),
};

const field = fc.oneof(fc.constantFrom('name', 'size', 'setup', 'made', 'owner', 'nobody', 'objectclass'), hostileName);
const value = fc.oneof(
  hostileText,
  fc.constantFrom('', '*', '%', '_', '\\', '1', '-1e308', 'true', '2030', '2030-02-31'),
);

const comparison: fc.Arbitrary<Filter> = fc.oneof(
  fc.record({ kind: fc.constant('equal' as const), field, value }),
  fc.record({ kind: fc.constant('prefix' as const), field, prefix: value }),
);

const filters: fc.Arbitrary<Filter> = fc.letrec<{ filter: Filter }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 5 },
    { weight: 4, arbitrary: comparison },
    fc.record({ kind: fc.constant('and' as const), filters: fc.array(tie('filter'), { maxLength: 4 }) }),
  ),
})).filter;

const TYPES = { name: 'string', size: 'number', setup: 'boolean', made: 'timestamp', owner: 'uuid' } as const;
const TARGET = {
  name: 'things',
  fields: new Map(Object.entries(TYPES).map(([name, type]) => [name, { type, sql: `"${name}"` }])),
};

/**
 * The texts that a filter may cause: names of the target, operators, and placeholders of values.
 */
const HARMLESS =
  /^(?:"(?:name|size|setup|made|owner)"|::(?:text|numeric|boolean|timestamptz|uuid)|\$\d+|and|like|true|[()= ])*$/;

export const filterPart: Part = {
  name: 'filters',
  about: 'filters, and their meaning in SQL',
  share: 230,
  quick: 2_000,
  open: async () =>
    pure(filters, (filter) => {
      const parameters = new SqlParameters();
      const sql = answered(() => filterCondition(filter, TARGET, parameters), InvalidQueryError, NotIndexedError);
      if (sql !== undefined && !HARMLESS.test(String(sql)))
        throw new Wrong(`${sql} contains more than names and parameters`, 'filter');
    }),
};

const KEYS = [
  ...[
    'cnapiUuid',
    'host',
    'port',
    'advertiseHost',
    'databaseUrl',
    'databasePoolSize',
    'redisUrl',
    'datacenter',
    'domain',
  ],
  ...[
    'logLevel',
    'maxAgents',
    'heartbeatMs',
    'silenceMs',
    'checkMs',
    'leaseMs',
    'beatMs',
    'drainWaitsMs',
    'taskStartByMs',
  ],
];
const goodValues: Record<string, string> = {
  databaseUrl: '"postgres://x@127.0.0.1/x"',
  port: '8080',
  logLevel: '"info"',
};
const configText = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .array(fc.tuple(fc.oneof({ weight: 8, arbitrary: fc.constantFrom(...KEYS) }, hostileName), hostileJson), {
        maxLength: 4,
      })
      .map((members) => objectText([...Object.entries(goodValues), ...members])),
  },
  { weight: 1, arbitrary: hostileJson },
  { weight: 1, arbitrary: brokenJson },
);
const variables = fc.array(
  fc.tuple(
    fc.oneof(
      fc.constantFrom(
        'CNAPI_PORT',
        'CNAPI_DATABASE_URL',
        'CNAPI_UUID',
        'CNAPI_',
        'CNAPI___PROTO__',
        'CNAPI_TEST_X',
        'PATH',
      ),
      hostileName.map((name) => `CNAPI_${name}`),
    ),
    hostileText,
  ),
  { maxLength: 3 },
);

export const configPart: Part = {
  name: 'config',
  about: 'configuration files and environments',
  share: 80,
  quick: 400,
  async open() {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'cnapi-fuzz-config-'));
    const file = path.join(directory, 'config.json');
    const input = fc.record({
      text: configText,
      variables,
      encoding: fc.constantFrom('utf8' as const, 'latin1' as const),
    });
    return pure(
      input,
      ({ text, variables, encoding }) => {
        writeFileSync(file, text, encoding);
        const environment: Record<string, string> = Object.create(null);
        for (const [name, content] of variables) environment[name] = content;
        const config = answered(() => loadConfig(file, environment), ConfigError);
        if (config !== undefined && !Object.isFrozen(config)) throw new Wrong('the configuration is not frozen');
      },
      async () => rmSync(directory, { recursive: true, force: true }),
    );
  },
};
