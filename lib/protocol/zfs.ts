/**
 * Names of ZFS, by the rules of ZFS itself (zfs(8), "ZFS File System Hierarchy", and zfsprops(7)).
 * What passes begins with a letter, so it is not an option of a program, and has neither `%`, which
 * ZFS keeps for itself, nor `,`, which makes a list. Checked by the routes and again by the agent.
 * Pure.
 */

const MAX_NAME_CHARS = 255;
const MAX_DEPTH = 50;
/** The maximum of one request. */
export const MAX_ZFS_PROPERTIES = 100;
const MAX_PROPERTY_CHARS = 255;
/** Bytes of the value of a user property, without its end. */
const MAX_VALUE_BYTES = 8191;

/** A space may not begin or end it. */
const COMPONENT = /^[\w.:-]([\w.: -]*[\w.:-])?$/;
const POOL = /^[A-Za-z][\w.: -]*$/;
/** Native properties, those of users, which have a colon, and those such as `userquota@NAME`. */
const PROPERTY = /^[a-z][a-z0-9:+._-]*(@[\w.@:-]+)?$/;

/** Why it is not the name of a file system or volume; undefined if it is. */
export function reasonNotDataset(name: string): string | undefined {
  if (name.length > MAX_NAME_CHARS) return `value is longer than ${MAX_NAME_CHARS} characters`;
  const [pool = '', ...rest] = name.split('/');
  if (!POOL.test(pool) || ![pool, ...rest].every(isComponent)) return 'value is not the name of a ZFS dataset';
  return rest.length >= MAX_DEPTH ? `value has more than ${MAX_DEPTH} levels` : undefined;
}

/** Why it is not DATASET@SNAPSHOT; undefined if it is. */
export function reasonNotSnapshot(name: string): string | undefined {
  const at = name.indexOf('@');
  if (at < 0) return 'value is not the name of a ZFS snapshot, DATASET@NAME';
  if (name.length > MAX_NAME_CHARS) return `value is longer than ${MAX_NAME_CHARS} characters`;
  return reasonNotDataset(name.slice(0, at)) ?? reasonNotSnapshotName(name.slice(at + 1));
}

export const reasonNotSnapshotName = (name: string): string | undefined =>
  name.length <= MAX_NAME_CHARS && isComponent(name) ? undefined : 'value is not the name of a ZFS snapshot';

/** Why it is neither of both; undefined if it is one. */
export const reasonNotDatasetOrSnapshot = (name: string): string | undefined =>
  name.includes('@') ? reasonNotSnapshot(name) : reasonNotDataset(name);

export const reasonNotProperty = (name: string): string | undefined =>
  name.length <= MAX_PROPERTY_CHARS && PROPERTY.test(name) ? undefined : 'value is not the name of a ZFS property';

/** Other characters would end the line of a value in what ZFS prints. */
export const reasonNotPropertyValue = (value: string): string | undefined =>
  Buffer.byteLength(value) <= MAX_VALUE_BYTES && !/\p{Cc}/u.test(value)
    ? undefined
    : `value of a property has a control character, or more than ${MAX_VALUE_BYTES} bytes`;

/** The file system or volume of a snapshot; of anything else, itself. */
export const datasetOf = (name: string): string => name.split('@', 1)[0] ?? '';

const isComponent = (name: string): boolean => COMPONENT.test(name) && name !== '.' && name !== '..';
