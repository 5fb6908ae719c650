/** The servers' bucket. */
import { documentBucket } from '../../platform/moray/bucket.ts';

/**
 * Key: the server's uuid, or `default` for the initial values of new servers (its `uuid` column is
 * null).
 */
export const serversBucket = documentBucket({
  name: 'cnapi_servers',
  version: 1,
  indexes: {
    datacenter: { type: 'string' },
    headnode: { type: 'boolean' },
    hostname: { type: 'string' },
    reserved: { type: 'boolean' },
    reservoir: { type: 'boolean' },
    setup: { type: 'boolean' },
    uuid: { type: 'uuid', unique: true },
  },
});
