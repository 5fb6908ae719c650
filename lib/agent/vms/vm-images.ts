/** What VMs need of the images of this server. */

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
  /** Undefined if this server does not have it, or not all of it. */
  get(uuid: string): Promise<VmImage | undefined>;
  /**
   * A new image of one layer, which `fill` makes in a directory that does not exist yet. If that
   * fails, nothing is left. Undefined if the store cannot do that. @throws VmError if there is such an image
   */
  add(uuid: string, defaults: ImageDefaults, fill: (directory: string) => Promise<void>): Promise<void>;
  /** The image stays while a container uses it. Can be repeated. */
  use(uuid: string, containerId: string): Promise<void>;
  /** Can be repeated. */
  release(containerId: string): Promise<void>;
}
