/** The interface of VMs to the images of this server. */

/** The configuration of an image, with the names of the OCI specification. */
export interface ImageDefaults {
  Entrypoint?: readonly string[] | null | undefined;
  Cmd?: readonly string[] | null | undefined;
  /** NAME=VALUE each. */
  Env?: readonly string[] | null | undefined;
  WorkingDir?: string | null | undefined;
  User?: string | null | undefined;
}

export interface VmImage {
  /** Directories of unpacked layers, the lowest first. */
  layers: readonly string[];
  defaults: ImageDefaults;
}

export interface VmImages {
  /** Undefined if the image, or a part of it, is not on this server. */
  get(uuid: string): Promise<VmImage | undefined>;
  /**
   * Adds an image of one layer, which `fill` makes in a directory that does not exist yet. If that
   * fails, nothing is left. @throws VmError if the image exists
   */
  add(uuid: string, defaults: ImageDefaults, fill: (directory: string) => Promise<void>): Promise<void>;
  /** Keeps the image on the server while the container uses it. Idempotent. */
  use(uuid: string, containerId: string): Promise<void>;
  /** Idempotent. */
  release(containerId: string): Promise<void>;
}
