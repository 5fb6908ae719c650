/** Archives of OCI image layouts for tests, also ones that are wrong on purpose. */
import { createHash } from 'node:crypto';
import { architectureOf } from '../../lib/agent/images/oci-documents.ts';
import { archiveOf, type TestEntry } from './layer-archive.ts';

export interface TestImage {
  /** Archives, the lowest first. */
  layers: readonly Buffer[];
  config?: Record<string, unknown>;
  architecture?: string;
  layerType?: string;
  /** Changes the entries before they are written. */
  spoil?(entries: TestEntry[]): TestEntry[];
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

export function ociArchiveOf(image: TestImage): Buffer {
  const { layers, config = {}, architecture = architectureOf(process.arch) } = image;
  const layerType = image.layerType ?? 'application/vnd.oci.image.layer.v1.tar+gzip';
  const blobs: Buffer[] = [...layers];
  const add = (mediaType: string, bytes: Buffer) => {
    blobs.push(bytes);
    return describe(mediaType, bytes);
  };
  const diffIds = layers.map((layer) => `sha256:${sha256(layer)}`);
  const configuration = { os: 'linux', architecture, config, rootfs: { type: 'layers', diff_ids: diffIds } };
  const manifest = {
    schemaVersion: 2,
    config: add('application/vnd.oci.image.config.v1+json', json(configuration)),
    layers: layers.map((layer) => describe(layerType, layer)),
  };
  const top = add('application/vnd.oci.image.manifest.v1+json', json(manifest));
  const entries: TestEntry[] = [
    { path: 'blobs/' },
    { path: 'blobs/sha256/' },
    ...[...new Map(blobs.map((bytes) => [sha256(bytes), bytes]))].map(([name, contents]) => ({
      path: `blobs/sha256/${name}`,
      contents,
    })),
    { path: 'index.json', contents: json({ schemaVersion: 2, manifests: [top] }) },
    { path: 'oci-layout', contents: '{"imageLayoutVersion":"1.0.0"}' },
  ];
  return archiveOf(image.spoil?.(entries) ?? entries);
}

const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

const describe = (mediaType: string, bytes: Buffer) => ({
  mediaType,
  digest: `sha256:${sha256(bytes)}`,
  size: bytes.length,
});
