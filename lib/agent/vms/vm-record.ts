/** What the agent stores of a VM on its disk. */
import type { VmProperties } from '../../protocol/vms.ts';
import { type RecordFiles, recordFiles } from '../records/record-files.ts';
import type { VmPhase } from './vm-lifecycle.ts';

export interface VmRecord {
  uuid: string;
  /** Digest of the payload of machine_create, by which a repeated create is recognized. */
  createDigest: string;
  properties: VmProperties;
  phase: VmPhase;
  /** Whether the VM must run. A new agent starts it again after a restart of the machine. */
  shouldRun: boolean;
  snapshots: readonly { name: string; created_at: string }[];
  /** Wall clock of the machine. */
  createdAt: number;
  modifiedAt: number;
  bootedAt?: number | undefined;
}

export const vmRecords = (directory: string): RecordFiles<VmRecord> => recordFiles(directory, ({ uuid }) => uuid);
