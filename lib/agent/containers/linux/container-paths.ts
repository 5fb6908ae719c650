/**
 * Where the files of containers are, below DATA/containers of the agent. Nothing outside this file
 * makes a path from an id.
 *
 *     all/ID/          the bundle of the container, its root file system and its log
 *     exits/ID.RUN     the exit status of a run, written by its monitor
 *     runtime/         what the OCI runtime keeps of its containers, each named ID.RUN
 */
import { join } from 'node:path';
import { ContainerError } from '../container-errors.ts';
import type { RunId } from '../runtime.ts';

const ID = /^[0-9a-z][0-9a-z-]{0,63}$/;
const RUN_NAME = /^([0-9a-z][0-9a-z-]{0,63})\.([1-9]\d{0,14})$/;

export interface ContainerPaths {
  bundle: string;
  config: string;
  /** New limits of a run. */
  limits: string;
  /** The directory for the root file system; `RootFileSystems` owns what is in it. */
  root: string;
  /** What the container writes (logs/log-files.ts). */
  logs: string;
  /** The monitor reads requests from this pipe. */
  control: string;
  /** The run that was started last (run-record.ts). */
  run: string;
  pid: string;
  monitorPid: string;
  /** Files that the agent and the monitor make for one run. */
  ofRun: readonly string[];
  /** Files of programs that are run in it. */
  execs: string;
  hosts: string;
  hostname: string;
  resolvers: string;
}

/** @throws ContainerError for an id that is not one */
export function containerPaths(directory: string, id: string): ContainerPaths {
  if (!ID.test(id)) throw new ContainerError(`"${id}" is not a container id; it must match ${ID.source}`);
  const bundle = join(allContainers(directory), id);
  const inside = (name: string) => join(bundle, name);
  return {
    bundle,
    config: inside('config.json'),
    limits: inside('limits.json'),
    root: inside('root'),
    logs: inside('logs'),
    control: inside('ctl'),
    run: inside('run.json'),
    pid: inside('pid'),
    monitorPid: inside('monitor-pid'),
    ofRun: ['run.json', 'pid', 'monitor-pid', 'ctl', 'winsz', 'attach', 'oom'].map(inside),
    execs: inside('execs'),
    hosts: inside('hosts'),
    hostname: inside('hostname'),
    resolvers: inside('resolv.conf'),
  };
}

export const allContainers = (directory: string): string => join(directory, 'all');
export const exitsOf = (directory: string): string => join(directory, 'exits');
export const runtimeRoot = (directory: string): string => join(directory, 'runtime');
export const isContainerId = (name: string): boolean => ID.test(name);

/** The name of a run for the OCI runtime, and of its control group. */
export function runName({ id, number }: RunId): string {
  const name = `${id}.${number}`;
  if (!RUN_NAME.test(name)) throw new ContainerError(`"${name}" is not the name of a run`);
  return name;
}

/** The run of such a name; undefined for another name. */
export function runOfName(name: string): RunId | undefined {
  const [, id, number] = RUN_NAME.exec(name) ?? [];
  return id === undefined ? undefined : { id, number: Number(number) };
}
