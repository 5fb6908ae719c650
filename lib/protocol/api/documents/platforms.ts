/**
 * Platforms: the images of an operating system from which servers boot. Triton asks its headnode
 * which ones there are; here an operator says so. Triton's `GET /platforms` reads them.
 */
import { z } from 'zod';
import { answer, contracts } from '../contract/contract.ts';
import { booleanText, boundedText, text } from '../contract/rules.ts';
import { type Document, documentNoun } from './document-noun.ts';

export const PLATFORM_OS = ['smartos', 'linux'] as const;

/** All of them fit into one page of the store, and are one answer. */
export const MAX_PLATFORMS = 200;

const platform = answer({
  latest: z.literal(true).optional().describe('No other one has a later time as its name'),
  os: z.enum(PLATFORM_OS).optional().describe('With the parameter `os`'),
});

const referenceContracts = contracts({
  ListPlatforms: {
    method: 'GET',
    path: '/platforms',
    summary: "The platforms from which servers may boot, by name, in the form of Triton's CNAPI",
    tag: 'servers',
    origin: 'reference',
    params: z.object({
      os: booleanText("Invalid value for param 'os'")
        .optional()
        .describe('Also says of each its operating system, and marks the latest one of each'),
    }),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: z.record(z.string(), platform),
        example: { '20200101T000000Z': {}, '20210101T000000Z': { latest: true } },
      },
    },
  },
});

const TIME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/;

function isTime(name: string): boolean {
  const iso = name.replace(TIME, '$1-$2-$3T$4:$5:$6.000Z');
  const time = new Date(iso);
  return iso !== name && !Number.isNaN(time.getTime()) && time.toISOString() === iso;
}

export const bootPlatforms = {
  ...documentNoun({
    name: 'boot_platform',
    plural: 'boot_platforms',
    command: 'platform',
    about: 'Platforms, from which servers boot',
    fields: {
      name: text()
        .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/, 'value is not 1 to 100 letters, digits and . _ -')
        .refine((name) => !TIME.test(name) || isTime(name), 'value has the form of a time and is none')
        .describe('A time such as 20210101T000000Z: the latest one is the default'),
      os: z.enum(PLATFORM_OS).default('smartos'),
      description: boundedText(500).optional(),
    },
    indexes: { name: 'string', os: 'string' },
    unique: ['name'],
    version: 1,
    eventFields: ['name', 'os'],
    listColumns: ['name', 'os', 'description'],
    createExamples: ['name=20210101T000000Z', 'name=20220301T000000Z os=linux'],
    isLimited: true,
  }),
  further: referenceContracts,
};

export type BootPlatform = Document<typeof bootPlatforms>;

/** The latest one of these names. Only those that are times have an order; undefined if none is. */
export const latestPlatform = (names: readonly string[]): string | undefined => names.filter(isTime).toSorted().at(-1);
