/**
 * Tests that `npm test` leaves to `.ci/run`, so that it takes about ten minutes on two cores:
 * most simulation seeds and their repetition, the largest explored state space, all pairs of
 * statements, the proofs that the lab detects deliberate defects, minutes of random load, chaos,
 * faults of whole zones, `npm start`, real containers, the clients of others, servers behind a real
 * broker, measured memory, and tests that need a distribution's Postgres, another version of cnapi
 * or a changed copy of it. They start first (order.ts), so the longest come first.
 */
import { globSync } from 'node:fs';
import path from 'node:path';

export const LONG = [
  'test/docs/{adding-a-noun,vms-tour}.test.ts',
  'test/**/defects.test.ts',
  'test/fuzz/fuzz.test.ts',
  'test/interleavings/{answers,catalogue,held-row,mix,pairs}.test.ts',
  'test/failover/*.test.ts',
  'test/upgrade/*.test.ts',
  'test/explorer/{roster,tasks,watching}.test.ts',
  'test/explorer/*-conformance.test.ts',
  'test/faults/*.test.ts',
  'test/sim/replay.test.ts',
  'test/sim/seeds-[2-6].test.ts',
  'test/sim/seeds-{arriving,duties,push,push-2,rare,vms-2,workflows-2}.test.ts',
  'test/tools/start/{instances,npm-start,scale}.test.ts',
  'test/cli/{faults,hardship}.test.ts',
  'test/cli/access/access.test.ts',
  'test/{openapi/openapi,sdc-clients/sdc-clients}.test.ts',
  'test/platform/postgres/{hosts,pool}.test.ts',
  'test/control/waitlist/{many-queues,stress}.test.ts',
  'test/control/legacy/real-agent.test.ts',
  'test/support/postgres-server.test.ts',
  'test/agent/containers/container-spec.test.ts',
  'test/agent/containers/linux/{isolation,linux-runtime}.test.ts',
  'test/agent/containers/logs/container-logs.test.ts',
  'test/agent/containers/layers/layer.test.ts',
  'test/agent/containers/root/{layered-containers,layered-root-file-systems}.test.ts',
  'test/agent/launcher/self-update.test.ts',
  'test/agent/legacy/legacy-reporter.test.ts',
  'test/chaos/{chaos,cleanup}.test.ts',
  'test/cli/{copy/cp,exec/port-forward,exec/interactive-exec}.test.ts',
  'test/cli/vms/{vm-console,vm-cp,vm-exec,vm-port-forward,vm-terminal}.test.ts',
  'test/control/link/overload.test.ts',
  'test/control/vms/docker/docker-{copy,exec}-on-linux.test.ts',
  'test/control/ur/{agent-installer,faults,servers}.test.ts',
  'test/control/http/limits/answer-memory.test.ts',
  'test/agent/containers/root/measure-tree.test.ts',
  'test/control/push/schedules/schedule-model.test.ts',
] as const;

export interface Selection {
  files: readonly string[];
  /** Files left out. */
  left: readonly string[];
  /** The caller named the files. */
  isNamed: boolean;
}

/** Selects the named files if any; all files with `--all`, or where nothing may be skipped. */
export function select(given: readonly string[], { root, isWhole }: { root: string; isWhole: boolean }): Selection {
  const named = given.filter((argument) => argument !== '--all');
  if (named.length > 0) return { files: named.flatMap((each) => filesOf(each, root)), left: [], isNamed: true };
  const all = glob(['test/**/*.test.ts'], root);
  const left = isWhole || given.includes('--all') ? [] : glob(LONG, root);
  return { files: all.filter((file) => !left.includes(file)), left, isNamed: false };
}

/** The test files that an argument names: a file, a folder or a pattern. */
function filesOf(argument: string, root: string): string[] {
  const inRoot = path.relative(root, path.resolve(root, argument));
  const files = glob([inRoot, `${inRoot}/**/*.test.ts`], root).filter((file) => file.endsWith('.test.ts'));
  if (files.length === 0) throw new Error(`no test file matches ${argument}`);
  return files;
}

/** Without the tests of packages: some tests install packages of their own below `test`. */
function glob(patterns: readonly string[], root: string): string[] {
  return globSync([...patterns], { cwd: root, exclude: ['**/node_modules'] }).sort();
}
