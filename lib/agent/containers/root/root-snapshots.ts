/** Copies of what a container has changed in its root file system. */
import type { Container } from '../container.ts';

/** The caller holds the lock of the container, and has checked the names. */
export interface RootSnapshots {
  /** Idempotent. Pauses the processes of a running container meanwhile. @throws ContainerError */
  take(container: Container, name: string): Promise<void>;
  /** The container must not run. Idempotent. @throws ContainerError */
  restore(container: Container, name: string): Promise<void>;
  /**
   * @returns the bytes of all files that a stopped container sees
   * @throws ContainerError if it has more files and directories than that
   */
  measure(container: Container, maxEntries: number): Promise<number>;
  /**
   * Writes all that a stopped container sees into a new directory, as one unpacked layer. What it
   * leaves when it fails the caller removes. @throws ContainerError
   */
  exportLayer(container: Container, directory: string): Promise<void>;
  /**
   * Removes all but these: an agent that was killed may have left others.
   * @returns those of them that exist
   */
  keepOnly(container: Container, names: readonly string[]): Promise<string[]>;
  /** Idempotent. The name is gone before any of its data is. */
  remove(container: Container, name: string): Promise<void>;
}
