/** The configuration of servers that speak Ur. Pure. */
import { z } from 'zod';
import { parseAmqpUrl } from '../../platform/amqp/amqp-url.ts';
import { parsed } from '../../platform/parsed-text.ts';

const MAX_MS = 86_400_000;

/** Environment values are strings. */
const silence = z.preprocess(
  (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
  z.number().int().min(1).max(MAX_MS),
);

export const urSettings = {
  amqpUrl: parsed(z.string(), parseAmqpUrl)
    .optional()
    .describe(
      "`amqp://user:password@host:5672`, or `amqps://…`: the broker through which Triton's servers without an agent speak ([Ur](ur.md)). Give all instances the same; without it they listen to none. Instances connect to it; servers that boot are told `rabbitmq`, which may be another name of the same broker",
    ),
  urSilenceMs: silence
    .default(90_000)
    .describe(
      'A server without an agent becomes `unknown` when its Ur has said nothing for this time, in which the broker worked ([Ur](ur.md))',
    ),
};
