/** The configuration of placement: its pipeline and weights, checked at start. Pure. */
import { z } from 'zod';
import { commaList, milliseconds, whole } from '../../platform/setting-rules.ts';
import { suggestion } from '../../platform/suggestion.ts';
import type { Ratios } from './candidate.ts';
import { DEFAULT_PIPELINE, type Pipeline, STEP_CATALOGUE, type StepName } from './pipeline.ts';
import { WEIGHTS, type WeightName } from './steps.ts';

const STEP_NAMES = Object.keys(STEP_CATALOGUE);
const RATIO_NAMES = ['cpu', 'ram', 'disk'] as const satisfies readonly (keyof Ratios)[];

const DEFAULT_WEIGHTS: Readonly<Record<WeightName, number>> = {
  current_platform: 1,
  next_reboot: 0.5,
  num_owner_zones: 0,
  uniform_random: 0.5,
  unreserved_disk: 1,
  unreserved_ram: 2,
};
const DEFAULT_RATIOS: Readonly<Ratios> = { cpu: 4, ram: 1, disk: 1 };
const MAX_STEPS = 100;

const pipeline = commaList(z.array(z.string()).min(1).max(MAX_STEPS))
  .superRefine((entries, context) => {
    for (const name of entries.flatMap((entry) => entry.split('|'))) {
      if (!STEP_NAMES.includes(name))
        context.addIssue(`${name} is not a step of placement${suggestion(name, STEP_NAMES)}`);
    }
  })
  .transform((entries): Pipeline => entries.map((entry) => entry.split('|') as StepName[]));

/** Numbers by name; in the environment `a=1,b=2`. What is left out has its default. */
function numbers<const Name extends string>(
  names: readonly Name[],
  { defaults, minimum }: { defaults: Readonly<Record<Name, number>>; minimum: number },
) {
  return z
    .preprocess(
      (value) => (typeof value === 'string' ? Object.fromEntries(value.split(',').map(pairOf)) : value),
      z.record(z.string(), z.number().min(minimum).max(1_000_000)),
    )
    .superRefine((values, context) => {
      for (const name of Object.keys(values)) {
        if (!names.includes(name as Name))
          context.addIssue(`${name} is not one of ${names.join(', ')}${suggestion(name, names)}`);
      }
    })
    .transform((values): Readonly<Record<Name, number>> => ({ ...defaults, ...values }));
}

const pairOf = (text: string): [string, unknown] => {
  const [name = '', value = ''] = text.split('=', 2);
  return [name.trim(), value.trim() === '' ? value : Number(value)];
};

export const placementSettings = {
  placementSteps: pipeline
    .default(() => DEFAULT_PIPELINE.map((entry) => entry.split('|') as StepName[]))
    .describe(
      'The steps that choose a server for a VM, in order; `a|b` runs `b` if `a` leaves no server ([placement](placement.md#the-pipeline))',
    ),
  placementWeights: numbers(WEIGHTS, { defaults: DEFAULT_WEIGHTS, minimum: -1_000_000 })
    .default(DEFAULT_WEIGHTS)
    .describe(
      'How much each score of placement counts: `{"unreserved_ram": 2}`, in the environment `unreserved_ram=2`',
    ),
  placementRatios: numbers(RATIO_NAMES, { defaults: DEFAULT_RATIOS, minimum: 0.01 })
    .default(DEFAULT_RATIOS)
    .describe(
      'How many times a server promises its CPU, memory and disk to VMs: `{"cpu": 4}`, in the environment `cpu=4`',
    ),
  placementMaxVms: whole(1, 100_000).default(224).describe('The maximum of VMs of a server for `hard-filter-vm-count`'),
  placementClaimMs: milliseconds
    .default(600_000)
    .describe('How long `POST /allocate` holds the room of a VM until the VM is created'),
  placementClaimsPerCaller: whole(0, 1_000_000)
    .default(10_000)
    .describe('VMs for which one caller may hold room at the same time, with `tokens`; 0 means no limit'),
};

export interface PlacementSettings {
  placementSteps: Pipeline;
  placementWeights: Readonly<Record<WeightName, number>>;
  placementRatios: Readonly<Ratios>;
  placementMaxVms: number;
  placementClaimMs: number;
  placementClaimsPerCaller: number;
}
