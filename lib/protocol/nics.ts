/**
 * The NIC tags of a server: names of the networks that its NICs reach. A change names NICs by their
 * MAC addresses. Checked by the routes and again by the agent. Pure.
 */
import { z } from 'zod';
import { isJsonObject } from './json/bounded-json.ts';

/**
 * `update` adds the tags to those that a NIC has, `replace` gives it exactly these, `delete`
 * removes them.
 */
export const NIC_ACTIONS = ['update', 'replace', 'delete'] as const;

export type NicAction = (typeof NIC_ACTIONS)[number];

export interface NicChange {
  /** In lower case. */
  mac: string;
  nic_tags_provided: string[];
}

const MAX_CHANGED_NICS = 64;
/** Also the maximum that one NIC may have. */
export const MAX_NIC_TAGS = 64;

const MAC = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i;
const TAG = /^\w{1,31}$/;

/** One failure, which names the first NIC that is wrong. */
export const nicChanges = () =>
  z
    .unknown()
    .transform((value, context): NicChange[] => {
      const reason = reasonNotNicChanges(value);
      if (reason === undefined) return (value as NicChange[]).map(nicChangeOf);
      context.addIssue(reason);
      return z.NEVER;
    })
    .meta({
      type: 'array',
      maxItems: MAX_CHANGED_NICS,
      items: {
        type: 'object',
        required: ['mac', 'nic_tags_provided'],
        properties: {
          mac: { type: 'string', pattern: MAC.source },
          nic_tags_provided: { type: 'array', maxItems: MAX_NIC_TAGS, items: { type: 'string', pattern: TAG.source } },
        },
      },
    });

const nicChangeOf = ({ mac, nic_tags_provided: tags }: NicChange): NicChange => ({
  mac: mac.toLowerCase(),
  nic_tags_provided: [...new Set(tags)],
});

function reasonNotNicChanges(value: unknown): string | undefined {
  if (!Array.isArray(value)) return 'value was not an array';
  if (value.length === 0 || value.length > MAX_CHANGED_NICS) return `value has not 1 to ${MAX_CHANGED_NICS} elements`;
  for (const [index, nic] of value.entries()) {
    const reason = reasonNotNicChange(nic);
    if (reason !== undefined) return `${index}: ${reason}`;
  }
  const macs = value.map(({ mac }: NicChange) => mac.toLowerCase());
  return new Set(macs).size === macs.length ? undefined : 'value names a NIC twice';
}

function reasonNotNicChange(nic: unknown): string | undefined {
  if (!isJsonObject(nic)) return 'value is not an object with mac and nic_tags_provided';
  const { mac, nic_tags_provided: tags } = nic;
  if (typeof mac !== 'string' || !MAC.test(mac)) return 'mac is not a MAC address, such as 0a:1b:2c:3d:4e:5f';
  if (!Array.isArray(tags)) return 'nic_tags_provided is not an array';
  if (tags.length > MAX_NIC_TAGS) return `nic_tags_provided has more than ${MAX_NIC_TAGS} elements`;
  const isTag = (tag: unknown) => typeof tag === 'string' && TAG.test(tag);
  return tags.every(isTag) ? undefined : 'a NIC tag is not 1 to 31 letters, digits and underscores';
}
