/**
 * VMs as instances and agents exchange them, with vmadm's names: the VM that an agent reports, and
 * the parameters of its tasks. Parameters that are not named here are ignored, because clients of
 * Triton send many that mean nothing for containers. Parameters that ask for what containers cannot
 * do are refused. docs/design/vms.md.
 */
import { z } from 'zod';
import { UUID } from '../platform/uuid.ts';
import { hostName } from './host-name.ts';

/** The default time limit of a stop; then the VM is killed. */
export const VM_STOP_MS = 60_000;
export const MAX_VM_STOP_SECONDS = 3_600;
export const MAX_VM_SNAPSHOTS = 32;
export const MAX_VM_NICS = 8;
export const MAX_VM_RESOLVERS = 3;
const MAX_METADATA_BYTES = 256 * 1024;
const MAX_METADATA_KEYS = 1_000;
/** Characters of a key of metadata, and of the names of packages. */
const MAX_NAME_CHARS = 256;

export const VM_STATES = ['provisioning', 'running', 'stopping', 'stopped', 'failed', 'destroying'] as const;
export type VmState = (typeof VM_STATES)[number];

/**
 * This project has containers only, as the brand `oci`; Triton has `joyent`, `lx`, `kvm` and
 * `bhyve`.
 */
const VM_BRANDS = ['oci'] as const;

/** Error codes of the tasks of VMs, in addition to those of all tasks. */
const VM_ERRORS = [
  'VmNotFound',
  'VmExists',
  'VmNotRunning',
  'VmAlreadyRunning',
  'VmIsBusy',
  'VmHasFailed',
  'VmFailed',
  'TooManyVms',
  'NoContainers',
  'ImageNotFound',
  'SnapshotNotFound',
  'SnapshotExists',
  'TooManySnapshots',
  'TooManyPrograms',
  'NoConsole',
  'NotSupported',
] as const;
export type VmErrorCode = (typeof VM_ERRORS)[number];

export const vmUuid = z.string().regex(UUID, 'is not a lower-case UUID');

const wholeNumber = (min: number, max: number, unit: string) => {
  const message = `is not a whole number from ${min} to ${max} (${unit})`;
  return z.number(message).int(message).min(min, message).max(max, message);
};

const alias = z
  .string()
  .regex(/^[0-9A-Za-z][0-9A-Za-z_.-]{0,188}$/, 'is not an alias; use at most 189 letters, digits, dots, dashes and _');
const name = z.string().max(MAX_NAME_CHARS);

/** Names of snapshots are names of directories. */
const snapshotName = z
  .string('snapshot_name is not a text')
  .regex(
    /^[0-9A-Za-z][0-9A-Za-z_.-]{0,63}$/,
    'is not a snapshot name; use at most 64 letters, digits, dots, dashes and _, and begin with a letter or digit',
  );

const metadataKey = z.string().min(1, 'has an empty key').max(MAX_NAME_CHARS, 'has a key that is too long');
/** JavaScript objects lose the name `__proto__`, so it is refused. */
const boundedRecord = <Value extends z.ZodType>(value: Value) =>
  z
    .unknown()
    .refine((one) => !Object.hasOwn(Object(one), '__proto__'), 'has the key __proto__; choose another one')
    .pipe(z.record(metadataKey, value))
    .refine((one) => Object.keys(one).length <= MAX_METADATA_KEYS, `has more than ${MAX_METADATA_KEYS} keys`)
    .refine(
      (one) => Buffer.byteLength(JSON.stringify(one)) <= MAX_METADATA_BYTES,
      `is larger than ${MAX_METADATA_BYTES} bytes`,
    );
/** The metadata in an update, and of the VM after the update. */
export const vmMetadata = boundedRecord(z.string('is not a text'));
export const vmTags = boundedRecord(z.union([z.string(), z.number(), z.boolean()], 'is not a text, number or boolean'));
const keys = z.array(metadataKey).max(MAX_METADATA_KEYS);

const mac = z
  .string()
  .transform((one) => one.toLowerCase())
  .refine((one) => /^([0-9a-f][02468ace])(:[0-9a-f]{2}){5}$/.test(one), 'is not a unicast MAC address');
const interfaceName = z
  .string()
  .regex(/^[A-Za-z][\w.-]{0,14}$/, 'is not an interface name; use at most 15 letters, digits, dots and dashes');

/** `nic_tag` is a bridge that the agent may use (--container-bridge). */
const nic = z.object({
  interface: interfaceName.optional(),
  mac: mac.optional(),
  nic_tag: z.string('is missing; name a bridge of the server').min(1).max(15),
  /** An address with the length of its network each, as 10.0.0.5/24. */
  ips: z.array(z.string().max(50)).max(16).optional(),
  ip: z.string().max(50).optional(),
  netmask: z.string().max(50).optional(),
  gateway: z.string().max(50).optional(),
  gateways: z.array(z.string().max(50)).max(2).optional(),
  vlan_id: z.literal(0, 'is not 0; this server has no VLANs for containers').optional(),
  primary: z.boolean().optional(),
  network_uuid: vmUuid.optional(),
});
export type VmNicRequest = z.infer<typeof nic>;

/** A network interface as an agent reports it. */
const reportedNic = z.object({
  interface: z.string(),
  mac: z.string(),
  nic_tag: z.string(),
  ips: z.array(z.string()),
  ip: z.string().optional(),
  netmask: z.string().optional(),
  gateway: z.string().optional(),
  gateways: z.array(z.string()).optional(),
  vlan_id: z.number().optional(),
  primary: z.boolean().optional(),
  network_uuid: z.string().optional(),
});
export type VmNic = z.infer<typeof reportedNic>;

const nics = z.array(nic).max(MAX_VM_NICS, `has more than ${MAX_VM_NICS} interfaces`);
const resolvers = z.array(z.string().max(50)).max(MAX_VM_RESOLVERS, `has more than ${MAX_VM_RESOLVERS} addresses`);
const memory = wholeNumber(6, 16 * 1024 * 1024, 'MiB');
const cpuCap = wholeNumber(1, 100_000, '100 is one core');
const quota = wholeNumber(0, 1024 * 1024, 'GiB');
const maxLwps = wholeNumber(16, 4_194_304, 'processes and threads');

/** What a create and an update may set. */
const changeable = {
  alias: alias.optional(),
  hostname: hostName().optional(),
  owner_uuid: vmUuid.optional(),
  max_physical_memory: memory.optional(),
  cpu_cap: cpuCap.optional(),
  quota: quota.optional(),
  max_lwps: maxLwps.optional(),
  resolvers: resolvers.optional(),
  autoboot: z.boolean('is not true or false').optional(),
  billing_id: name.optional(),
  package_name: name.optional(),
  package_version: name.optional(),
  dns_domain: name.optional(),
};

type ChangeableField = keyof typeof changeable;
export const CHANGEABLE_FIELDS: readonly ChangeableField[] = Object.keys(changeable) as ChangeableField[];

/**
 * What a VM gets that asks for nothing else: vmadm's defaults, which has no limit of processor
 * time; here it is one core.
 */
export const VM_DEFAULTS = { max_physical_memory: 256, cpu_cap: 100, quota: 10, max_lwps: 2_000, autoboot: true };
export const DEFAULT_BRAND = 'oci';

/** Parameters that ask for what containers of this backend do not have. */
const refused = {
  disks: z.array(z.unknown()).max(0, 'are not supported: containers have a root file system and no disks').optional(),
  filesystems: z.array(z.unknown()).max(0, 'are not supported by VMs of this server').optional(),
  delegate_dataset: z.literal(false, 'is not supported: this server has no ZFS').optional(),
  firewall_enabled: z.literal(false, 'is not supported: this server has no firewall for containers').optional(),
  firewall_rules: z.array(z.unknown()).max(0, 'are not supported: this server has no firewall').optional(),
  indestructible_zoneroot: z.literal(false, 'is not supported: this server has no ZFS').optional(),
  indestructible_delegated: z.literal(false, 'is not supported: this server has no ZFS').optional(),
};

/** The payload of machine_create. */
export const vmCreate = z.object({
  ...changeable,
  ...refused,
  uuid: vmUuid,
  image_uuid: vmUuid,
  brand: z
    .enum(VM_BRANDS, 'is not supported: this server runs VMs of the brand oci (containers) only')
    .default(DEFAULT_BRAND),
  nics: nics.default([]),
  customer_metadata: vmMetadata.default({}),
  internal_metadata: vmMetadata.default({}),
  tags: vmTags.default({}),
});
export type VmCreate = z.infer<typeof vmCreate>;

/** What the creator of a VM asks for and the agent reports, with defaults for what is absent. */
export type VmProperties = Pick<Vm, Exclude<keyof VmCreate & keyof Vm, 'uuid'>>;

/** The payload of machine_update, without the uuid. */
export const vmUpdate = z.object({
  ...changeable,
  ...refused,
  set_customer_metadata: vmMetadata.optional(),
  remove_customer_metadata: keys.optional(),
  set_internal_metadata: vmMetadata.optional(),
  remove_internal_metadata: keys.optional(),
  set_tags: vmTags.optional(),
  remove_tags: keys.optional(),
  add_nics: nics.optional(),
  /** Each names an interface by its MAC. */
  update_nics: z.array(nic.partial().extend({ mac })).max(MAX_VM_NICS).optional(),
  /** MACs. */
  remove_nics: z.array(mac).max(MAX_VM_NICS).optional(),
});
export type VmUpdate = z.infer<typeof vmUpdate>;

const snapshot = z.object({ name: z.string(), created_at: z.string() });

/** A VM as its agent reports it. Newer agents may add fields. */
export const vm = z.object({
  uuid: vmUuid,
  alias: z.string().optional(),
  hostname: z.string(),
  /** Always the uuid, for clients that read this field. */
  zonename: z.string(),
  brand: z.string(),
  state: z.enum(VM_STATES),
  zone_state: z.string(),
  owner_uuid: z.string().optional(),
  image_uuid: z.string(),
  max_physical_memory: z.number(),
  cpu_cap: z.number(),
  quota: z.number(),
  max_lwps: z.number(),
  nics: z.array(reportedNic),
  resolvers: z.array(z.string()),
  customer_metadata: z.record(z.string(), z.string()),
  internal_metadata: z.record(z.string(), z.string()),
  tags: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  autoboot: z.boolean(),
  billing_id: z.string().optional(),
  package_name: z.string().optional(),
  package_version: z.string().optional(),
  dns_domain: z.string().optional(),
  create_timestamp: z.string(),
  last_modified: z.string(),
  /**
   * When the last run began, and how it ended. `exit_status` is 128 + N after signal N, null if
   * unknown.
   */
  boot_timestamp: z.string().optional(),
  exit_timestamp: z.string().optional(),
  exit_status: z.number().nullable().optional(),
  /** The pid of the first process on the server, while the VM runs. */
  pid: z.number().optional(),
  /** Why the VM is `failed`, or why its last start or run ended as it did: a sentence. */
  error: z.string().optional(),
  snapshots: z.array(snapshot),
});
export type Vm = z.infer<typeof vm>;

/** A VM in a status frame: Triton's fields, and what the list of VMs needs. */
export const vmSummary = vm.pick({
  uuid: true,
  alias: true,
  brand: true,
  cpu_cap: true,
  image_uuid: true,
  last_modified: true,
  max_physical_memory: true,
  owner_uuid: true,
  quota: true,
  state: true,
  zone_state: true,
  exit_status: true,
  error: true,
});
export type VmSummary = z.infer<typeof vmSummary>;

/** An entry of `vms` of a status frame. */
export function vmSummaryOf(one: Vm): VmSummary {
  return vmSummary.parse(one);
}

/** A boolean, or its text in a query. */
const flag = z
  .union([z.boolean(), z.enum(['true', 'false'])], 'is not true or false')
  .transform((one) => one === true || one === 'true')
  .default(false);

/** The payload of machine_boot. `update` may only set internal metadata. */
const vmBoot = z.object({
  uuid: vmUuid,
  update: z.strictObject({ set_internal_metadata: vmMetadata.optional() }).optional(),
  idempotent: flag,
});
/** `timeout` is in seconds, as in vmadm. */
const vmShutdown = z.object({
  uuid: vmUuid,
  force: flag,
  timeout: z
    .union(
      [
        z.number(),
        z
          .string()
          .regex(/^\d{1,6}$/)
          .transform(Number),
      ],
      'is not a number of seconds',
    )
    .pipe(wholeNumber(0, MAX_VM_STOP_SECONDS, 'seconds'))
    .optional(),
  idempotent: flag,
});
const vmReboot = vmShutdown.extend({ update: vmBoot.shape.update });
const vmKill = z.object({
  uuid: vmUuid,
  signal: z.union([z.string().max(20), z.number()]).default('SIGKILL'),
  idempotent: flag,
});
const vmReprovision = z.object({ uuid: vmUuid, image_uuid: vmUuid });
const notYet = (what: string) => `is not supported: this server ${what}`;
/** The new image stays on this server, so `compression` and `imgapi_url` have no effect. */
const vmImage = z.object({
  uuid: vmUuid,
  manifest: z.looseObject({ uuid: vmUuid }, 'is missing; give an object with the uuid of the image'),
  compression: z.string().optional(),
  imgapi_url: z.string().optional(),
  incremental: z.literal(false, notYet('makes whole images only')).optional(),
  prepare_image_script: z.literal('', notYet('runs no script in the VM')).optional(),
});
const vmSnapshot = z.object({ uuid: vmUuid, snapshot_name: snapshotName });

const network = z.object({
  uuid: vmUuid,
  gateway: z.string().max(50).optional(),
  resolvers: resolvers.optional(),
});
export type VmNetwork = z.infer<typeof network>;

/** A network of NAPI before and after a change; VMs on it get its gateway and resolvers. */
export const vmNetworks = z.object({ original_network: network, networks: z.array(network).max(100) });
export type VmNetworks = z.infer<typeof vmNetworks>;

/** The parameters of the tasks of VMs that take more than a uuid. */
export const vmTaskParams = {
  machine_create: vmCreate,
  machine_update: vmUpdate,
  machine_boot: vmBoot,
  machine_shutdown: vmShutdown,
  machine_reboot: vmReboot,
  machine_kill: vmKill,
  machine_reprovision: vmReprovision,
  machine_create_snapshot: vmSnapshot,
  machine_rollback_snapshot: vmSnapshot,
  machine_delete_snapshot: vmSnapshot,
  machine_create_image: vmImage,
  machine_update_nics: vmNetworks,
};
