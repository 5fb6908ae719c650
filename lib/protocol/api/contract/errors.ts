/**
 * The errors of the REST API. A code is stable: callers decide by it. The message says what
 * happened to which object, and may change.
 */
import { z } from 'zod';

/** What each code means. */
export const ERROR_CODES = {
  AnswerMemoryFull: 'The instance holds as many bytes of answers as it may; ask again, or another instance',
  AnswerShareFull: 'The caller has the maximum number of bytes of unread answers',
  BadRequest: 'Not a request that can be upgraded to a WebSocket',
  BadSignatureHeaders: 'Headers of a signed request are missing, or its version is unknown',
  ConflictingRoles: 'The server has a role that excludes this one',
  DatasetNotChangeable: 'The configuration of the agent does not allow the change of the dataset, or VMs use it',
  DatabaseBusy: 'A row is locked or the statement is slow; nothing was changed, try again',
  DefinitionInUse: 'Noderoles have the role, or are in the deployment',
  DockerCopyStoppedContainerNoPlatformSupport: 'The platform of the server cannot copy from a stopped container',
  EtagConflict: 'Another write came first',
  ExpectationFailed: 'An `Expect` other than 100-continue',
  Forbidden: 'The token may not do this, or the request came from where none may',
  IdempotencyConflict: 'The key was used with another body',
  IdempotencyKeyLost: 'The job that another request with this key created was deleted meanwhile; try again',
  InstanceDraining: 'The instance is draining; ask again, another one answers',
  InternalError: 'A failed task of a synchronous route, an expired ticket, or a defect of cnapi',
  InvalidArgument: 'A parameter that is unknown, or cannot have this value',
  InvalidContent: 'A body that does not match its declared format',
  InvalidParameters: 'Parameters that fail their rules; `errors` lists all of them',
  FactoryResetNotAllowed: 'The agent was started without --factory-reset',
  FileNotFound: 'There is no such file in the VM',
  InvalidVersion: 'The platform of the server is too old for the task',
  LastInstance: 'No other instance would take its place',
  MethodNotAllowedError: 'The path does not have this method',
  NoAgentAddress: 'The sysinfo of a legacy agent names no address',
  NoAllocatableServersError: 'No server has room for the VM, or may have it',
  NoderoleInUse: 'Other noderoles require this one, or it runs',
  NoderoleTransition: 'The noderole is in a state that does not allow this',
  NoderolesChanged: 'Other changes of the graph came first several times; try again',
  NotSupported: 'The agent of the server cannot do this',
  PathNotDirectory: 'The path in the VM is not a directory',
  PreconditionFailed: 'A required confirmation is missing',
  PushJobEnded: 'The push job has ended',
  PushJobNotChangeable: 'The push job does not take this change in its state',
  PushJobNotEnded: 'The push job has not ended',
  PushScheduleBusy: 'The last job of the push schedule has not ended, and its overlap policy is not `allow`',
  PushScheduleConflict: 'Another request changed the push schedule at the same moment; try again',
  PushScheduleEnded: 'The push schedule has ended',
  RebootNotAllowed: 'The agent was started without --allow-reboot',
  RequestEntityTooLarge: 'The URL, the headers or the body are too large',
  RequestTimeout: 'The request did not arrive in time',
  ResourceNotFound: 'No such object or path',
  RoleNotBindable: 'The role, or one that it requires, does not exist or cannot be bound',
  ServerHasWorkflowJob: 'Another workflow job of the server has not ended',
  ServerNotRunning: "The server's agent is not connected",
  SetupNotAllowed: 'The agent was started without --allow-setup',
  ServiceUnavailable: 'The instance is stopping or cannot reach its database; try again, or another instance',
  TaskEnded: 'The task has ended',
  TaskNotCancellable: 'A legacy agent has the task, which cannot be cancelled there',
  TicketEnded: 'The ticket has expired or was released',
  TicketFinished: 'The ticket was released, and will not be active',
  TicketNotActive: 'The task is not accepted, because its ticket is not active',
  TicketOfAnotherServer: 'The task is not accepted, because its ticket is for another server',
  TicketWaitTimeout: 'The time is up and the ticket is still queued; wait again',
  TokenEnded: 'The token was revoked or expired during the request',
  TokenNameTaken: 'Another token that is not revoked has this name',
  TooManyAgentRequests: 'The instance waits for as many legacy agents as it may',
  TooManyDocuments: 'There are as many of these objects as there may be; delete some',
  TooManyFollowedNodes: 'Followers of push jobs remember as many nodes at this instance as they may',
  TooManyFollowers: 'The instance has the maximum number of followers of events',
  TooManyNoderoles: 'There are as many noderoles as there may be; delete some',
  TooManyNewServers: 'The caller has created as many servers in an hour as it may',
  TooManyPushJobs: 'As many push jobs are unfinished as there may be; try again when some have ended',
  TooManyClaims: 'The caller holds room for the maximum number of VMs already',
  TooManyPrograms: 'The server runs the maximum number of detached programs',
  TooManyPushSchedules: 'There are as many push schedules as there may be; delete some',
  TooManyRequests: 'Too many requests of this address or token',
  TooManyStreams: 'The caller, or the instance, has the maximum number of streams',
  TooManyTasks: 'The queue of the server is full',
  TooManyTickets: 'The queue, or its server, holds as many tickets as it may',
  TooManyWorkflowJobs: 'As many workflow jobs are unfinished as there may be; try again when some have ended',
  TooManyWaiters: 'The instance has the maximum number of waits',
  Unauthorized: 'No token, or an invalid one',
  UniqueAttribute: 'Another object has this value, and no two may have it',
  UnknownTask: 'The agent does not know this task',
  UnsupportedMediaType: 'A Content-Type or Content-Encoding that is not supported',
  UpgradeRequired: 'Agents connect here with a WebSocket',
  VmExists: 'A VM with this uuid exists, or is being created, on this or another server',
  VolumeServerNoResourcesError: 'No server has the VMs whose volumes the VM needs, and may have it',
  VmNotRunning: 'The VM does not run',
  WorkflowJobEnded: 'The workflow job has ended',
  VmHasWorkflowJob: 'A workflow job that creates the VM has not ended',
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;
const errorCodes = Object.keys(ERROR_CODES) as ErrorCode[];

/** Codes that any route may answer with this status. */
const IMPLIED_CODES: Readonly<Record<number, readonly ErrorCode[]>> = {
  400: ['InvalidParameters', 'InvalidContent', 'BadRequest'],
  401: ['Unauthorized', 'TokenEnded'],
  403: ['Forbidden'],
  404: ['ResourceNotFound'],
  408: ['RequestTimeout'],
  409: ['InvalidArgument'],
  429: ['TooManyRequests', 'AnswerShareFull'],
  500: ['InternalError', 'InvalidParameters'],
  503: ['ServiceUnavailable', 'DatabaseBusy', 'AnswerMemoryFull'],
};

/** The body of every error. */
export const errorBody = z
  .object({
    code: z.enum(errorCodes).describe(meanings()).meta({ id: 'ErrorCode' }),
    message: z.string(),
    errors: z
      .array(z.object({ field: z.string(), code: z.string(), message: z.string() }))
      .optional()
      .describe('What is wrong with each parameter'),
  })
  .meta({ id: 'Error' });

/** The body of an error with one of these codes. */
export const errorBodyWith = (codes: readonly ErrorCode[]) =>
  z.intersection(errorBody, z.object({ code: z.enum(codes) }));

function meanings(): string {
  const lines = Object.entries(ERROR_CODES).map(([code, meaning]) => `- \`${code}\`: ${meaning}`);
  return ['A later version may have more codes.', '', ...lines].join('\n');
}

/** The codes of an answer: those of the route, and those that any route may have. */
export function codesOf(status: number, codes: readonly ErrorCode[] = []): ErrorCode[] {
  return [...new Set([...codes, ...(IMPLIED_CODES[status] ?? [])])];
}
