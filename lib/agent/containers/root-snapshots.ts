/** Copies of what a container has changed in its root file system. */
import type { Container } from './container.ts';

/** The caller holds the container: nothing else happens to it. Names are checked before. */
export interface RootSnapshots {
  /** Can be repeated. Processes of a container that runs stand still meanwhile. @throws ContainerError */
  take(container: Container, name: string): Promise<void>;
  /** The container must not run. Can be repeated. @throws ContainerError */
  restore(container: Container, name: string): Promise<void>;
  /**
   * Writes all that a stopped container sees into a new directory, as one unpacked layer. What it
   * leaves when it fails the caller removes. @throws ContainerError
   */
  exportLayer(container: Container, directory: string): Promise<void>;
  /** Removes all but these: an agent that was killed may have left others. */
  keepOnly(container: Container, names: readonly string[]): Promise<void>;
  /** Can be repeated. */
  remove(container: Container, name: string): Promise<void>;
}
