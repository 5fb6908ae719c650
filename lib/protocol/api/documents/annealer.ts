/**
 * Roles and deployments: the definitions from which the annealer makes noderoles
 * (docs/annealer.md). What becomes of them on each server is in `../annealer.ts`.
 */
import { z } from 'zod';
import { boundedText, integer, object, text, textArray, uuid } from '../contract/rules.ts';
import { type Document, documentNoun } from './document-noun.ts';

/** What carries out the runs of a role. */
export const JIGS = ['noop', 'test', 'script'] as const;

/**
 * - `implicit`: bound only to the same server as what requires it.
 * - `destructive`: not run again once it has succeeded.
 * - `cluster`: what requires it waits for all of its noderoles in the deployment.
 * - `abstract`: a name that other roles provide; never bound itself.
 */
export const ROLE_FLAGS = ['implicit', 'destructive', 'cluster', 'abstract'] as const;

const NAME = /^[a-z][a-z0-9_-]{0,62}$/;
const NOT_A_NAME = 'value is not 1 to 63 lower-case letters, digits, _ and -, beginning with a letter';
const name = () => text().regex(NAME, NOT_A_NAME);

const MAX_NAMES = 50;
const names = (what: string) =>
  textArray(MAX_NAMES)
    .refine((values) => values.every((value) => NAME.test(value)), `an element ${NOT_A_NAME.slice('value '.length)}`)
    .overwrite((values) => [...new Set(values)])
    .default([])
    .describe(what);

const MAX_PATHS = 100;
const PATH = /^[^/]{1,100}(\/[^/]{1,100}){0,9}$/;
const MAX_SCRIPT_CHARS = 65_536;
const MAX_RETRIES = 1_000;
const DAY_MS = 86_400_000;

const roleNoun = documentNoun({
  name: 'role',
  plural: 'roles',
  about: 'Roles, which the annealer carries out on the servers that they are bound to',
  isLimited: true,
  fields: {
    name: name().describe('Unique; other roles name it'),
    description: boundedText(500).optional(),
    jig: z
      .enum(JIGS, `value is not ${JIGS.join(', ')}`)
      .describe('What carries it out: `script` on the agent; `noop` succeeds and `test` does what its data says'),
    script: boundedText(MAX_SCRIPT_CHARS)
      .optional()
      .describe('Of the jig `script`: sh runs it on the server, or the interpreter that its first line names'),
    timeout: integer('timeout', 1, DAY_MS / 1000)
      .default(3600)
      .describe('Seconds that one run of the script may take'),
    flags: textArray(ROLE_FLAGS.length)
      .refine(
        (values) => values.every((value) => (ROLE_FLAGS as readonly string[]).includes(value)),
        `an element is not ${ROLE_FLAGS.join(', ')}`,
      )
      .default([])
      .describe(ROLE_FLAGS.join(', ')),
    requires: names('Roles that must be active first; bound with this one where they are not bound in scope'),
    runs_after: names('Roles that must be active first if they are bound at all'),
    conflicts: names('Roles that no server may have together with this one'),
    provides: names('Roles that this one stands in for'),
    wants: textArray(MAX_PATHS)
      .refine((values) => values.every((value) => PATH.test(value)), 'an element is not a path such as db/port')
      .default([])
      .describe('Paths such as `db/port`: what it sees of the data of parents on other servers'),
    template: object().default({}).describe('Its data where neither a run nor a user says otherwise'),
    retry: integer('retry', -1, MAX_RETRIES)
      .default(0)
      .describe('How often a failed run is tried again before the noderole is in error; -1: always'),
    delay: integer('delay', 0, DAY_MS).default(0).describe('Milliseconds before a failed run is tried again'),
  },
  indexes: { name: 'string', jig: 'string' },
  unique: ['name'],
  version: 1,
  eventFields: ['name', 'jig'],
  listColumns: ['name', 'jig', 'requires', 'description'],
  createExamples: [
    "name=ntp jig=script 'script=apt-get install -y chrony'",
    'name=web jig=noop \'requires=["ntp","db"]\'',
  ],
});

/** Scripts and templates may hold secrets, as the parameters of tasks. */
export const roles = {
  ...roleNoun,
  contracts: {
    ...roleNoun.contracts,
    list: { ...roleNoun.contracts.list, requiredRole: 'operator' },
    get: { ...roleNoun.contracts.get, requiredRole: 'operator' },
  },
} as const;

export const deployments = documentNoun({
  name: 'deployment',
  plural: 'deployments',
  hasOwnCommands: true,
  about: 'Deployments: noderoles that are proposed and committed together',
  isLimited: true,
  fields: {
    name: name().describe('Unique'),
    description: boundedText(500).optional(),
    parent: uuid().optional().describe('A deployment whose noderoles may be parents of those of this one'),
  },
  indexes: { name: 'string', parent: 'uuid' },
  unique: ['name'],
  version: 1,
  eventFields: ['name'],
  listColumns: ['name', 'parent', 'description'],
});

export type RoleDocument = Document<typeof roles>;
export type DeploymentDocument = Document<typeof deployments>;
