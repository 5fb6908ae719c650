/** What a caller of `docker-copy` asks for, and what it is told of the path. Pure. */
import { invalidParameter } from '../../../platform/errors.ts';
import { DOCKER_COPY, NOT_FOUND_HEAD } from '../../../protocol/streams/copy/copy-scripts.ts';

const MODES = ['read', 'write', 'stat'] as const;
type CopyMode = (typeof MODES)[number];

interface DockerCopy {
  mode: CopyMode;
  /** Absolute, without `.` and `..`, and without a slash at its end. */
  path: string;
  /** Command line of the program in the VM. */
  args: string[];
}

interface GivenCopy {
  path?: string | undefined;
  mode?: string | undefined;
  /** What old clients send instead. */
  payload?: Readonly<Record<string, unknown>> | undefined;
}

/** File information in the form of the Docker API. The mode is that of Go's os.FileMode. */
interface PathStat {
  name: string;
  size: number;
  mode: number;
  mtime: string;
  linkTarget: string;
}

/** The limit of Linux. */
const MAX_PATH_BYTES = 4096;
const MS = 1000;

/** @throws InvalidParametersError */
export function parseDockerCopy({ payload = {}, ...given }: GivenCopy): DockerCopy {
  const { path: asked, mode: askedMode } = given.path ? given : payload;
  const field = (name: string) => (given.path ? name : `payload.${name}`);
  if (typeof asked !== 'string' || asked === '') throw invalidParameter('path', 'value was not a string');
  if (asked.includes('\0') || Buffer.byteLength(asked) > MAX_PATH_BYTES)
    throw invalidParameter(field('path'), `has a NUL character, or more than ${MAX_PATH_BYTES} bytes`);
  const mode = MODES.find((one) => one === (askedMode ?? 'read'));
  if (mode === undefined) throw invalidParameter(field('mode'), `is none of ${MODES.join(', ')}`);
  const found = absolutePath(asked);
  if (mode === 'read' && found === '/')
    throw invalidParameter(field('path'), 'is the root of the VM, which has /proc in it; name a directory in it');
  return { mode, path: found, args: ['sh', '-c', DOCKER_COPY, 'sh', mode, found] };
}

function absolutePath(asked: string): string {
  const names: string[] = [];
  for (const name of asked.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}

/** What the program in the VM has found; undefined if it says something else. */
export function readHead(head: string, found: string): PathStat | { code: string; message: string } | undefined {
  const [first = '', ...rest] = head.split('\n');
  const linkTarget = rest.join('\n');
  const [kind, code = ''] = first.split(' ');
  if (kind === NOT_FOUND_HEAD) return { code, message: linkTarget };
  const facts = /^([0-9a-f]{1,8}) (\d{1,16}) (-?\d{1,11})$/.exec(first);
  if (facts === null) return undefined;
  const [, mode, size, seconds] = facts;
  return {
    name: found.slice(1),
    size: Number(size),
    mode: goMode(Number.parseInt(mode ?? '', 16)),
    mtime: new Date(Number(seconds) * MS).toISOString(),
    linkTarget,
  };
}

const PERMISSIONS = 0o777;
const TYPE = 0o170000;
/** Maps the type bits of Linux to the mode bits of Go. Regular files have no type bits in Go. */
const GO_TYPES: ReadonlyMap<number, number> = new Map([
  [0o040000, 2 ** 31],
  [0o120000, 2 ** 27],
  [0o060000, 2 ** 26],
  [0o010000, 2 ** 25],
  [0o140000, 2 ** 24],
  [0o020000, 2 ** 26 + 2 ** 21],
]);
const SET_UID = [0o4000, 2 ** 23] as const;
const SET_GID = [0o2000, 2 ** 22] as const;
const STICKY = [0o1000, 2 ** 20] as const;

function goMode(mode: number): number {
  const special = [SET_UID, SET_GID, STICKY].map(([bit, ofGo]) => ((mode & bit) === 0 ? 0 : ofGo));
  return [mode & PERMISSIONS, GO_TYPES.get(mode & TYPE) ?? 0, ...special].reduce((sum, bits) => sum + bits, 0);
}
