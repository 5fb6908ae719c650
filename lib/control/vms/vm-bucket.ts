/** The bucket of VMs, whose table `migrations/001-vms.sql` makes. Key: the VM's uuid. */
import { documentBucket } from '../../platform/moray/bucket.ts';

export const vmsBucket = documentBucket({
  name: 'cnapi_vms',
  version: 1,
  indexes: {
    server_uuid: { type: 'uuid' },
    owner_uuid: { type: 'string' },
    image_uuid: { type: 'string' },
    state: { type: 'string' },
    alias: { type: 'string' },
  },
  onChange: { name: 'cnapi_log_vm_event', arguments: [] },
});
