/**
 * The tasks of VMs, for the table in tasks.ts. All but `machine_create` work on the VM that `uuid`
 * names. vms.ts has the schemas of their parameters. Idempotent tasks recognize what is already
 * done.
 */
import type { TaskKind } from './task-kind.ts';

const UUID_PARAM = 'required, the uuid of the VM';
const IDEMPOTENT = 'true: succeeds if the VM is already in that state';
const TIMEOUT = 'seconds until the VM is killed, at most 3600';
const SNAPSHOT = 'required, the name of the snapshot';

const snapshotParams = { uuid: UUID_PARAM, snapshot_name: SNAPSHOT };
const stopParams = {
  uuid: UUID_PARAM,
  force: 'true: kill the VM immediately',
  timeout: TIMEOUT,
  idempotent: IDEMPOTENT,
};
const UPDATE = 'an object with set_internal_metadata only';

export const VM_TASK_KINDS = {
  machine_create: {
    idempotent: true,
    params: {
      uuid: 'required, the uuid of the new VM',
      image_uuid: 'required, the uuid of an image on the server',
      brand: 'oci',
      autoboot: 'false: do not start the VM',
      max_physical_memory: 'MiB',
      cpu_cap: 'percent of a core',
      nics: 'a list of network interfaces',
    },
  },
  machine_load: { idempotent: true, params: { uuid: UUID_PARAM } },
  machine_info: { idempotent: true, params: { uuid: UUID_PARAM, types: 'a list of the fields to return' } },
  machine_proc: { idempotent: true, params: { uuid: UUID_PARAM } },
  machine_boot: { idempotent: false, params: { uuid: UUID_PARAM, update: UPDATE, idempotent: IDEMPOTENT } },
  machine_shutdown: { idempotent: false, params: stopParams },
  machine_reboot: { idempotent: false, params: { ...stopParams, update: UPDATE } },
  machine_kill: {
    idempotent: false,
    params: { uuid: UUID_PARAM, signal: 'a name or number (default: SIGKILL)', idempotent: IDEMPOTENT },
  },
  machine_update: { idempotent: false, params: { uuid: UUID_PARAM } },
  machine_update_nics: {
    idempotent: true,
    params: { original_network: 'required, a network', networks: 'required, a list that has the changed network' },
  },
  machine_reprovision: {
    idempotent: true,
    params: { uuid: UUID_PARAM, image_uuid: 'required, the uuid of the new image' },
  },
  machine_destroy: { idempotent: true, params: { uuid: UUID_PARAM } },
  machine_create_snapshot: { idempotent: false, params: snapshotParams },
  machine_rollback_snapshot: { idempotent: true, params: snapshotParams },
  machine_delete_snapshot: { idempotent: false, params: snapshotParams },
  machine_create_image: {
    idempotent: false,
    params: {
      uuid: UUID_PARAM,
      manifest: 'required, an object with the uuid of the image',
      compression: 'no effect: the image is stored unpacked',
      imgapi_url: 'no effect: the image stays on the server',
      incremental: 'false',
      prepare_image_script: 'an empty text',
    },
  },
} satisfies Readonly<Record<string, TaskKind>>;
