/** The configuration of servers that speak Ur. Pure. */
import { z } from 'zod';
import { parseAmqpUrl } from '../../platform/amqp/amqp-url.ts';
import { parsed } from '../../platform/parsed-text.ts';
import { milliseconds } from '../../platform/setting-rules.ts';

const MAX_MS = 86_400_000;

const MAX_OPTIONS = 100;
const MAX_CHARS = 4_000;
const text = z.string().min(1).max(MAX_CHARS);
const absolutePath = text.regex(/^\/[^\0]*$/, 'is not an absolute path');
const option = z.union([text, z.boolean(), z.array(text).max(MAX_OPTIONS)]);

const urAgent = z.strictObject({
  /** The file of the public key, on the instance; read at each installation. */
  key: text,
  /** The options of the agent's configuration file. */
  options: z
    .record(z.string().max(100), option)
    .refine((given) => Object.keys(given).length <= MAX_OPTIONS, `has more than ${MAX_OPTIONS} options`)
    .refine(({ url, dns }) => url !== undefined || dns !== undefined, 'has neither url nor dns'),
  /** On the server. */
  directory: absolutePath.default('/opt/cn-agent'),
  /** The program of Node on the server: a path, or a name on the PATH of Ur. */
  node: text.default('node'),
  /** A program of the server with its arguments; undefined: the agent is started directly. */
  start: z.array(text).min(1).max(MAX_OPTIONS).optional(),
  /** The agent must have a session within this time. */
  withinMs: z.number().int().min(1).max(MAX_MS).default(120_000),
});

export type UrAgentSettings = z.infer<typeof urAgent>;

export const urSettings = {
  amqpUrl: parsed(z.string(), parseAmqpUrl)
    .optional()
    .describe(
      "`amqp://user:password@host:5672`, or `amqps://…`: the broker through which Triton's servers without an agent speak ([Ur](ur.md)). Give all instances the same; without it they listen to none. Instances connect to it; servers that boot are told `rabbitmq`, which may be another name of the same broker",
    ),
  urSilenceMs: milliseconds
    .default(90_000)
    .describe(
      'A server without an agent becomes `unknown` when its Ur has said nothing for this time, in which the broker worked ([Ur](ur.md))',
    ),
  urAgent: z
    .preprocess((value) => (typeof value === 'string' ? jsonOrText(value) : value), urAgent)
    .optional()
    .describe(
      'How a server without an agent gets one ([Ur](ur.md#install-the-agent)): `{"key": "/etc/cnapi/release.pub", "options": {"dns": "10.0.0.2:8053"}}`; without it `install-agent` fails for such servers',
    ),
};

/** In the environment it is JSON. */
function jsonOrText(value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
