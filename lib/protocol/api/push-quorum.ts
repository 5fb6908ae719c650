/** The quorum of a push job, as a parameter: a number of nodes, or a percentage. */
import { z } from 'zod';

const PERCENTAGE = /^(100(\.0+)?|[1-9]?\d(\.\d+)?)%$/;

export const pushQuorum = z
  .custom<number | string>(
    (value) => (typeof value === 'string' ? PERCENTAGE.test(value) : Number.isInteger(value) && Number(value) >= 1),
    'value is neither a number of nodes nor a percentage such as "80%"',
  )
  .transform((value) => (typeof value === 'number' ? value : { percent: Number(value.slice(0, -1)) }))
  .meta({
    oneOf: [
      { type: 'integer', minimum: 1 },
      { type: 'string', pattern: '^\\d+(\\.\\d+)?%$' },
    ],
  });
