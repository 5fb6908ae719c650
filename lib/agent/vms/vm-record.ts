/** What the agent stores of a VM on its disk. */
import type { VmProperties } from '../../protocol/vms.ts';
import { type RecordFiles, recordFiles } from '../records/record-files.ts';
import type { VmLife } from './vm-lifecycle.ts';

export interface VmRecord extends VmLife {
  uuid: string;
  /** Digest of the payload of machine_create, by which a repeated create is recognized. */
  createDigest: string;
  properties: VmProperties;
  snapshots: readonly { name: string; created_at: string }[];
  /** Wall clock of the machine. */
  createdAt: number;
  modifiedAt: number;
  bootedAt?: number | undefined;
}

export const vmRecords = (directory: string): RecordFiles<VmRecord> => recordFiles(directory, ({ uuid }) => uuid);
