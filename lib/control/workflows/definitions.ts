/**
 * The workflows: which steps each has, and what each step does. A job stores the names of its
 * steps, so an instance of another version carries out the same ones or, if it does not know one,
 * leaves the job to others. Pure. Called where jobs are created, and by `workflow-runner.ts`.
 */

import { withoutUndefined } from '../../platform/defined-fields.ts';
import type { WORKFLOW_NAMES } from '../../protocol/api/workflows.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { withSecretUrl } from '../../protocol/secret-params.ts';
import { DISK_PARAMS } from '../../protocol/server-setup.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import type { ServerChange } from '../servers/server-update.ts';
import type { Plan } from './workflow.ts';

export type WorkflowName = (typeof WORKFLOW_NAMES)[number];

/** What a step reads of its job. */
export interface StepJob {
  id: string;
  chain: readonly string[];
  params: JsonObject;
  /** What steps have noted for later ones. */
  facts: JsonObject;
  /** The ends of steps of the chain. */
  results: readonly { name: string; error_code?: string }[];
}

/** What a step does. */
export type StepWork =
  | {
      kind: 'task';
      task: TaskName;
      /** The parameters of the task. Absent: none. */
      params?: (job: StepJob) => JsonObject;
      /** Errors of the task with which the step is done all the same. */
      accepts?: readonly string[];
      /** The result is the sysinfo of the server, which is stored. */
      keepsSysinfo?: boolean;
      /** The step is done without its task unless an earlier step has noted this fact. */
      ifNoted?: 'create_task';
    }
  | { kind: 'change'; change: (job: StepJob) => ServerChange }
  /** The server is displayed as `rebooting` until it is back. */
  | { kind: 'mark-rebooting' }
  /** Until the server has no other task that has not ended. */
  | { kind: 'await-idle' }
  /** Until the server runs, and has another boot time than when the job noted it. */
  | { kind: 'await-boot' }
  /** Until the job has the lock of its VM. */
  | { kind: 'take-ticket' }
  /** Gives up that lock. The room that the job holds for the VM ends with the job. */
  | { kind: 'release' };

export interface WorkflowStep {
  /** The limit of a task, or of the wait. */
  timeoutMs: number;
  /** Default 1. */
  maxTries?: number;
  work: StepWork;
  /** This field of the server is noted in the facts before the first try of the step begins. */
  notes?: 'last_boot' | 'setup';
  /** The fact `create_task` is noted when its task is created. */
  notesTask?: boolean;
  /** In `onerror`: the step of the chain that it undoes. Absent: it is for every job. */
  undoes?: string;
  /**
   * The step is never given up while its server exists. An error is one of the duty, which is
   * handed over and goes on after a pause.
   */
  isInsistent?: boolean;
}

interface Workflow {
  steps: Readonly<Record<string, WorkflowStep>>;
  /** Names of steps. */
  chain: (params: JsonObject) => string[];
  onerror?: readonly string[];
}

const MINUTE_MS = 60_000;
const QUICK_MS = 5 * MINUTE_MS;

/** The reference asks 180 times, every 5 s. */
const DRAIN_MS = 15 * MINUTE_MS;
const BOOT_MS = 60 * MINUTE_MS;
/** Programs of the operator run in it. */
const SETUP_MS = 60 * MINUTE_MS;
/** How long a job waits for another one that has the lock of its VM. */
const QUEUE_MS = 15 * MINUTE_MS;
/** The download of an image, and the start of a VM from it. */
const PROVISION_MS = 60 * MINUTE_MS;

const BEGIN_DRAIN = 'begin-drain';

/**
 * The pause of a drain: until what it is for has begun, or is done. If the job cannot end it,
 * because the agent cannot be reached when the job fails, it ends by itself.
 */
const beginDrain = (ms: number): WorkflowStep => ({
  timeoutMs: QUICK_MS,
  work: { kind: 'task', task: 'agent_pause', params: ({ id }) => ({ drain: id, lease: DRAIN_MS + QUICK_MS + ms }) },
});
const awaitIdle: WorkflowStep = { timeoutMs: DRAIN_MS, work: { kind: 'await-idle' } };
const endDrain: WorkflowStep = {
  timeoutMs: QUICK_MS,
  maxTries: 3,
  work: { kind: 'task', task: 'agent_resume', params: ({ id }) => ({ drain: id }) },
  undoes: BEGIN_DRAIN,
};
/** Jobs of former versions have these steps: a pause that stays until it is ended. */
const formerDrain: Record<string, WorkflowStep> = {
  'pause-agent': { timeoutMs: QUICK_MS, work: { kind: 'task', task: 'agent_pause' } },
  'resume-agent': {
    timeoutMs: QUICK_MS,
    maxTries: 3,
    work: { kind: 'task', task: 'agent_resume' },
    undoes: 'pause-agent',
  },
};
/**
 * Names a job that drains, so that the agent refuses what would end work that it has taken
 * meanwhile.
 */
const drainOf = ({ id, chain }: StepJob): JsonObject => (chain.includes(BEGIN_DRAIN) ? { drain: id } : {});

const refreshSysinfo: WorkflowStep = {
  timeoutMs: QUICK_MS,
  maxTries: 3,
  work: { kind: 'task', task: 'server_sysinfo', keepsSysinfo: true },
};

/** Selects the parameters of the job that its task has, too. */
const only =
  (names: readonly string[]) =>
  ({ params }: StepJob) =>
    withoutUndefined(Object.fromEntries(names.map((name) => [name, params[name]])));

/** The parameters of `vm-provision` that are none of the VM. */
const OF_PROVISION: readonly string[] = ['server_uuid', 'image_url', 'image_digest'];

export const vmParamsOf = (params: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(params).filter(([name]) => !OF_PROVISION.includes(name)));

const changing = (change: (job: StepJob) => ServerChange): WorkflowStep => ({
  timeoutMs: QUICK_MS,
  maxTries: 3,
  work: { kind: 'change', change },
});

/** Without it the server's row would say for ever what the job has left. */
const undoing = (step: string, change: (job: StepJob) => ServerChange): WorkflowStep => ({
  ...changing(change),
  isInsistent: true,
  undoes: step,
});

/** A machine that stops may take its agent with it before the end of the task is recorded. */
export const ENDS_OF_A_REBOOT: readonly string[] = ['AgentRestarted', 'AgentStopped', 'OutcomeUnknown', 'TaskTimeout'];

/**
 * With these a reset has not begun: the instance has not sent its task, or the agent has refused
 * it.
 */
const REFUSALS_OF_A_RESET = ['NotTaken', 'UnknownTask', 'AgentPaused', 'AgentFull', 'InvalidParameters'].concat(
  ...['NotDrained', 'FactoryResetNotAllowed', 'ServerHasVms'],
);

/**
 * A server whose reset has not begun is set up as before. What is left of another one is not known.
 */
function setupAfterReset({ facts, results }: StepJob): ServerChange {
  const reset = results.findLast(({ name }) => name === 'factory-reset');
  const hasBegun = reset !== undefined && !REFUSALS_OF_A_RESET.includes(reset.error_code ?? '');
  return { resetting: false, ...(!hasBegun && typeof facts.setup === 'boolean' && { setup: facts.setup }) };
}

const WORKFLOWS: Readonly<Record<WorkflowName, Workflow>> = {
  'server-reboot': {
    steps: {
      ...formerDrain,
      [BEGIN_DRAIN]: beginDrain(0),
      'await-idle': awaitIdle,
      reboot: {
        timeoutMs: QUICK_MS,
        notes: 'last_boot',
        work: { kind: 'task', task: 'server_reboot', params: drainOf, accepts: ENDS_OF_A_REBOOT },
      },
      'mark-rebooting': { timeoutMs: QUICK_MS, maxTries: 3, work: { kind: 'mark-rebooting' } },
      'await-boot': { timeoutMs: BOOT_MS, work: { kind: 'await-boot' } },
      'end-drain': endDrain,
      // Nobody follows the reboot any more.
      'mark-not-rebooting': undoing('mark-rebooting', () => ({ transitional_status: '' })),
    },
    chain: ({ drain }) => [
      ...(drain === true ? [BEGIN_DRAIN, 'await-idle'] : []),
      ...['reboot', 'mark-rebooting', 'await-boot'],
      // After a boot an agent is not paused. This is for a machine that was told to reboot, and
      // whose time of its boot has changed for another reason.
      ...(drain === true ? ['end-drain'] : []),
    ],
    onerror: ['mark-not-rebooting', 'end-drain'],
  },
  'server-update-nics': {
    steps: {
      'update-nics': {
        timeoutMs: QUICK_MS,
        maxTries: 3,
        work: { kind: 'task', task: 'server_update_nics', params: only(['action', 'nics']) },
      },
      'refresh-sysinfo': refreshSysinfo,
    },
    chain: () => ['update-nics', 'refresh-sysinfo'],
  },
  'server-setup': {
    steps: {
      'mark-setting-up': changing(() => ({ setting_up: true })),
      setup: {
        timeoutMs: SETUP_MS,
        work: {
          kind: 'task',
          task: 'server_setup',
          params: only(['hostname', 'postsetup_script', 'nics', ...DISK_PARAMS]),
        },
      },
      'refresh-sysinfo': refreshSysinfo,
      // Its name as well only now: a machine that refused to be set up still has its former one.
      'mark-set-up': changing(({ params: { hostname } }) => ({
        ...{ setup: true, setting_up: false },
        ...(typeof hostname === 'string' && { hostname }),
      })),
      'mark-not-setting-up': undoing('mark-setting-up', () => ({ setting_up: false })),
    },
    chain: () => ['mark-setting-up', 'setup', 'refresh-sysinfo', 'mark-set-up'],
    onerror: ['mark-not-setting-up'],
  },
  'server-factory-reset': {
    steps: {
      // Before it is emptied, so that placement chooses it no more. Until the end of the job, no
      // sysinfo says otherwise.
      'mark-not-set-up': { ...changing(() => ({ setup: false, resetting: true })), notes: 'setup' },
      [BEGIN_DRAIN]: beginDrain(SETUP_MS),
      'await-idle': awaitIdle,
      // Its success ends the pause as well, because the machine may be gone a moment later.
      'factory-reset': {
        timeoutMs: SETUP_MS,
        work: { kind: 'task', task: 'server_factory_reset', params: ({ id }) => ({ drain: id }) },
      },
      'mark-reset': changing(() => ({ resetting: false })),
      'end-drain': endDrain,
      // Not by asking the agent, which may be away.
      'restore-set-up': undoing('mark-not-set-up', setupAfterReset),
      // It knows better, if it can be reached.
      'refresh-sysinfo': { ...refreshSysinfo, undoes: 'mark-not-set-up' },
    },
    chain: () => ['mark-not-set-up', BEGIN_DRAIN, 'await-idle', 'factory-reset', 'mark-reset'],
    onerror: ['end-drain', 'restore-set-up', 'refresh-sysinfo'],
  },
  // The room is held before the job is created. The server is that of the room.
  'vm-provision': {
    steps: {
      'take-ticket': { timeoutMs: QUEUE_MS, work: { kind: 'take-ticket' } },
      'ensure-image': {
        timeoutMs: PROVISION_MS,
        maxTries: 3,
        work: {
          kind: 'task',
          task: 'image_ensure_present',
          params: ({ params: { image_uuid, image_url: url, image_digest: digest } }) =>
            withSecretUrl('image_ensure_present', { image_uuid, url, ...(digest !== undefined && { digest }) }),
        },
      },
      // Its end says that the VM runs.
      'create-vm': {
        timeoutMs: PROVISION_MS,
        notesTask: true,
        work: { kind: 'task', task: 'machine_create', params: ({ params }) => vmParamsOf(params) },
      },
      // Once the task exists, no other VM can have this uuid; without it the VM may be another
      // one's.
      'delete-vm': {
        timeoutMs: QUICK_MS,
        maxTries: 3,
        work: { kind: 'task', task: 'machine_destroy', params: only(['uuid']), ifNoted: 'create_task' },
        undoes: 'create-vm',
      },
      release: { timeoutMs: QUICK_MS, maxTries: 3, work: { kind: 'release' } },
    },
    chain: ({ image_url }) => [
      'take-ticket',
      ...(image_url === undefined ? [] : ['ensure-image']),
      ...['create-vm', 'release'],
    ],
    onerror: ['delete-vm', 'release'],
  },
};

/** The names of the steps of a new job. */
export function stepNames(workflow: WorkflowName, params: JsonObject): { chain: string[]; onerror: string[] } {
  const { chain, onerror = [] } = WORKFLOWS[workflow];
  return { chain: chain(params), onerror: [...onerror] };
}

/** The parameters of a job that the tasks of its steps are given. */
export function taskParams(workflow: WorkflowName, params: JsonObject): JsonObject {
  const { steps, chain } = WORKFLOWS[workflow];
  const job: StepJob = { id: '', chain: chain(params), params, facts: {}, results: [] };
  const works = job.chain.map((name) => steps[name]?.work);
  return Object.assign({}, ...works.map((work) => (work?.kind === 'task' ? work.params?.(job) : {})));
}

/** @throws for a step that this version does not know */
export function workflowStep(workflow: string, name: string): WorkflowStep {
  const steps = Object.hasOwn(WORKFLOWS, workflow) ? WORKFLOWS[workflow as WorkflowName].steps : undefined;
  const step = steps !== undefined && Object.hasOwn(steps, name) ? steps[name] : undefined;
  if (step === undefined) throw new Error(`this version does not know step ${name} of workflow ${workflow}`);
  return step;
}

/** The plan of a job with these steps. @throws for a step that this version does not know */
export function buildPlan(workflow: string, names: { chain: readonly string[]; onerror: readonly string[] }): Plan {
  const planned = (name: string) => {
    const { maxTries = 1, work, undoes } = workflowStep(workflow, name);
    return { name, maxTries, isTask: work.kind === 'task', undoes };
  };
  return { chain: names.chain.map(planned), onerror: names.onerror.map(planned) };
}

/** The longest that a job with this chain can take, in seconds. */
export function timeoutSeconds(workflow: string, chain: readonly string[]): number {
  const steps = chain.map((name) => workflowStep(workflow, name));
  return steps.reduce((sum, { timeoutMs, maxTries = 1 }) => sum + (timeoutMs / 1000) * maxTries, 0);
}
