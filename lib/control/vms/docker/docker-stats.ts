/** `docker-stats` for servers with an agent of this project. */
import { z } from 'zod';
import { invalidParameter } from '../../../platform/errors.ts';
import { VM_STATS_TASK } from '../../../protocol/streams/stream.ts';
import { DockerStatsLines } from './docker-stats-lines.ts';
import {
  checkHasNoToken,
  checkVmRunning,
  type DockerContext,
  type DockerDeps,
  type DockerParams,
  openPort,
} from './docker-task.ts';

type StatsContext = DockerContext & {
  params: DockerParams & { payload?: Readonly<Record<string, unknown>> | undefined };
};

interface DockerStatsRequest {
  apiVersion: number;
  /** How many samples the agent sends. If absent, it sends samples until the caller leaves. */
  samples?: number;
}

/** The names of sdc-docker; `stream` is that of the Docker API. */
const statsPayload = z.object({
  clientApiVersion: z.number().nullish(),
  doStream: z.boolean().nullish(),
  stream: z.boolean().nullish(),
});

/** One line of statistics is the difference of two samples. */
const SAMPLES_OF_ONE_LINE = 2;

/** Answers where the caller can connect within 30 seconds. */
export async function dockerStats(deps: DockerDeps, context: StatsContext): Promise<{ host: string; port: number }> {
  const { apiVersion, ...params } = toDockerStats(context.params.payload);
  checkHasNoToken(context, 'docker-stats', 'ask GET …/info');
  await checkVmRunning(deps, context, 'stats');
  const codec = new DockerStatsLines(apiVersion);
  const { host, port } = await openPort(deps, context, { task: VM_STATS_TASK, params, hasInput: false, codec });
  return { host, port };
}

/** @throws InvalidParametersError */
export function toDockerStats(payload: Readonly<Record<string, unknown>> = {}): DockerStatsRequest {
  const parsed = statsPayload.safeParse(payload);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw invalidParameter(['payload', ...(issue?.path ?? [])].join('.'), issue?.message ?? 'is not valid');
  }
  const { clientApiVersion, doStream, stream } = parsed.data;
  const isStream = doStream ?? stream ?? true;
  return { apiVersion: clientApiVersion ?? 0, ...(!isStream && { samples: SAMPLES_OF_ONE_LINE }) };
}
