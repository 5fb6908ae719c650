/** What the images of this server are for VMs. */

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

/** The layer of an image that is made on this server. */
export interface ImageContents {
  /**
   * @returns the bytes that it will have. @throws Error if it has more files and directories than
   * that
   */
  measure(maxEntries: number): Promise<number>;
  /** Writes it into a directory that does not exist yet. */
  write(directory: string): Promise<void>;
}

export interface ImageStore {
  /** Undefined if the image, or a part of it, is not on this server. */
  get(uuid: string): Promise<VmImage | undefined>;
  /**
   * Adds an image of one layer. Its space is reserved before it is written; if that fails, nothing
   * is left. @throws ImageExistsError
   */
  add(uuid: string, defaults: ImageDefaults, contents: ImageContents): Promise<void>;
  /** Keeps the image on the server while the container uses it. Idempotent. */
  use(uuid: string, containerId: string): Promise<void>;
  /** The container uses no image any more, except this one. Idempotent. */
  release(containerId: string, exceptUuid?: string): Promise<void>;
}
