/**
 * The JSON documents of an OCI image layout: index, manifest and configuration (OCI image
 * specification 1.1). They are untrusted input: what this server cannot run is refused with the
 * reason, and what it does not need is ignored.
 */
import { z } from 'zod';
import { messageOf } from '../../platform/errors.ts';
import { DIGEST, type ImageConfig } from './image.ts';
import { InvalidImageError } from './image-errors.ts';

const digest = z.string().regex(DIGEST, 'is not a sha256 digest');
const descriptor = z.object({ mediaType: z.string().max(200).optional(), digest, size: z.int().min(0) });
export type Descriptor = z.infer<typeof descriptor>;

const platform = z.object({ os: z.string(), architecture: z.string(), variant: z.string().optional() });
/** The limits of overlay and of one manifest. */
const MAX_LAYERS = 128;
const MAX_MANIFESTS = 1_000;

const index = z.object({
  schemaVersion: z.literal(2),
  manifests: z.array(descriptor.extend({ platform: platform.optional() })).max(MAX_MANIFESTS),
});
type Index = z.infer<typeof index>;

const manifest = z.object({
  schemaVersion: z.literal(2),
  config: descriptor,
  layers: z.array(descriptor).min(1).max(MAX_LAYERS),
});
type Manifest = z.infer<typeof manifest>;

const word = z.string().max(128 * 1024);
const words = z.array(word).max(1_000).nullish();
const config = z.object({
  os: z.string(),
  architecture: z.string(),
  config: z
    .object({
      Entrypoint: words,
      Cmd: words,
      Env: words,
      WorkingDir: z.string().max(4_096).nullish(),
      User: z.string().max(256).nullish(),
    })
    .nullish(),
  rootfs: z.object({ diff_ids: z.array(digest).max(MAX_LAYERS) }),
});

/** The names that images give to processors. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64', arm: 'arm', ia32: '386' };
export const architectureOf = (arch: string): string => ARCHITECTURES[arch] ?? arch;

const LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.docker.image.rootfs.diff.tar',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
];
const INDEX_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];

/** @throws InvalidImageError */
export const parseIndex = (bytes: Buffer, name: string): Index => parse(index, bytes, name);

/** @throws InvalidImageError, also for layers that this server cannot unpack */
export function parseManifest(bytes: Buffer, name: string): Manifest {
  const parsed = parse(manifest, bytes, name);
  for (const { mediaType = LAYER_TYPES[0] as string } of parsed.layers)
    if (!LAYER_TYPES.includes(mediaType))
      throw new InvalidImageError(`a layer has the type ${mediaType}; this server takes tar, plain or with gzip`);
  return parsed;
}

/**
 * @throws InvalidImageError, also if the image is for other machines or does not fit its manifest
 */
export function parseImageConfig(bytes: Buffer, { arch, layers }: { arch: string; layers: number }): ImageConfig {
  const { os, architecture, config: defaults, rootfs } = parse(config, bytes, 'its configuration');
  if (os !== 'linux' || architecture !== architectureOf(arch))
    throw new InvalidImageError(
      `it is for ${os} on ${architecture}, and this server is linux on ${architectureOf(arch)}`,
    );
  if (rootfs.diff_ids.length !== layers)
    throw new InvalidImageError(`its configuration names ${rootfs.diff_ids.length} layers, and its manifest ${layers}`);
  const { Entrypoint, Cmd, Env, WorkingDir, User } = defaults ?? {};
  return {
    ...(Entrypoint && { Entrypoint }),
    ...(Cmd && { Cmd }),
    ...(Env && { Env }),
    ...(WorkingDir && { WorkingDir }),
    ...(User && { User }),
  };
}

/**
 * The manifest of an index that this machine can run, or another index to look into.
 * @throws InvalidImageError if there is none
 */
export function chooseManifest({ manifests }: Index, arch: string): { descriptor: Descriptor; isIndex: boolean } {
  const wanted = architectureOf(arch);
  const fits = manifests.filter(
    (manifest) =>
      manifest.platform === undefined ||
      (manifest.platform.os === 'linux' && manifest.platform.architecture === wanted),
  );
  const [chosen, ...others] = fits;
  if (chosen === undefined) {
    const names = manifests.map(({ platform }) => (platform ? `${platform.os}/${platform.architecture}` : 'any'));
    throw new InvalidImageError(
      `it has no image for linux/${wanted} (it has ${names.slice(0, 10).join(', ') || 'none'})`,
    );
  }
  if (others.some((manifest) => manifest.platform === undefined))
    throw new InvalidImageError('it holds several images; export one of them');
  return { descriptor: chosen, isIndex: INDEX_TYPES.includes(chosen.mediaType ?? '') };
}

function parse<Schema extends z.ZodType>(schema: Schema, bytes: Buffer, name: string): z.infer<Schema> {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new InvalidImageError(`${name} is not JSON (${messageOf(error)})`, error);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new InvalidImageError(`${name}: ${issue?.path.join('.') || 'it'} ${issue?.message ?? 'is wrong'}`);
}
