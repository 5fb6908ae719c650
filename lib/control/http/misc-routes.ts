/** Health, information about this process, its log level, its metrics and the API description. */
import { z } from 'zod';
import { empty, ok, type Route, route } from './route.ts';
import { number } from '../../protocol/api/rules.ts';

const LOG_LEVELS = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 } as const;
type LevelName = keyof typeof LOG_LEVELS;

const online = z.enum(['online', 'offline']);

/** A bunyan level, by name or number. */
const logLevel = z
  .union(
    [z.enum(Object.keys(LOG_LEVELS) as LevelName[]).transform((name) => LOG_LEVELS[name]), number()],
    'value was not a log level',
  )
  .refine((level) => Number.isInteger(level) && level >= 10 && level <= 60, 'value was not a log level from 10 to 60');

export const miscRoutes: Route[] = [
  route({
    name: 'Ping',
    method: 'GET',
    path: '/ping',
    summary: 'Whether this instance, its database and its bus work; always 200, see /ready for a status code',
    tag: 'misc',
    origin: 'reference',
    need: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    quiet: true,
    responses: {
      200: {
        description: 'moray is the database, amqp the bus; workflow is served from within',
        schema: z.object({ ready: z.boolean(), services: z.object({ workflow: online, moray: online, amqp: online }) }),
        example: { ready: true, services: { workflow: 'online', moray: 'online', amqp: 'online' } },
      },
    },
    handler({ services }) {
      const { database, bus } = services.health();
      const word = (isUp: boolean) => (isUp ? 'online' : 'offline');
      return ok({
        ready: services.roster.isReady().ready,
        services: { workflow: word(true), moray: word(database), amqp: word(bus) },
      });
    },
  }),
  route({
    name: 'Ready',
    method: 'GET',
    path: '/ready',
    summary: 'For load balancers: whether this instance should be sent requests',
    tag: 'misc',
    origin: 'own',
    need: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    quiet: true,
    responses: {
      200: { description: 'Yes', schema: z.object({ ready: z.literal(true) }), example: { ready: true } },
      503: { description: 'No, and why', schema: z.object({ ready: z.literal(false), reasons: z.array(z.string()) }) },
    },
    handler({ services }) {
      const { ready, reasons } = services.roster.isReady();
      return ready ? ok({ ready }) : { status: 503, body: { ready, reasons }, headers: { 'Retry-After': '1' } };
    },
  }),
  route({
    name: 'GetInfo',
    method: 'GET',
    path: '/info',
    summary: 'The version that answers',
    tag: 'misc',
    origin: 'reference',
    withoutDatabase: true,
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.object({ version: z.string() }), example: { version: '0.2.0' } } },
    handler: ({ services }) => ok({ version: services.version }),
  }),
  route({
    name: 'GetDiagnostics',
    method: 'GET',
    path: '/diagnostics',
    summary: 'What this process holds',
    tag: 'misc',
    origin: 'reference',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: z.looseObject({ start_timestamp: z.string(), memory: z.record(z.string(), z.number()) }),
      },
    },
    handler: ({ services }) =>
      ok({
        start_timestamp: services.startedAt,
        memory: process.memoryUsage(),
        taskCallbacks: {},
        // A ticket becomes active together with the change that allows it, so none is ever pending.
        pendingActivationsByServer: {},
        tasks: services.tasks.stats(),
        waitlist: services.waitlist.stats(),
      }),
  }),
  route({
    name: 'GetLogLevel',
    method: 'GET',
    path: '/loglevel',
    summary: "This process's log level, bunyan's number",
    tag: 'misc',
    origin: 'reference',
    withoutDatabase: true,
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.object({ level: z.int() }), example: { level: 30 } } },
    handler: ({ services }) => ok({ level: services.logLevel.get() }),
  }),
  route({
    name: 'SetLogLevel',
    method: 'POST',
    path: '/loglevel',
    summary: "Sets this process's log level, by bunyan's name or number",
    tag: 'misc',
    origin: 'reference',
    params: z.object({ level: logLevel }),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'Set' } },
    handler({ params, services }) {
      services.logLevel.set(params.level);
      return empty(200);
    },
  }),
  route({
    name: 'GetMetrics',
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics of this instance, for Prometheus',
    tag: 'misc',
    origin: 'own',
    withoutDatabase: true,
    params: z.object({}),
    lenient: true,
    preconditions: [],
    quiet: true,
    responses: { 200: { description: 'OK', schema: z.string(), contentType: 'text/plain' } },
    handler: async ({ services }) => ({ status: 200, text: await services.metrics() }),
  }),
  route({
    name: 'GetOpenApi',
    method: 'GET',
    path: '/openapi.json',
    summary: 'This document',
    tag: 'misc',
    origin: 'own',
    need: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OpenAPI 3.1', schema: z.looseObject({ openapi: z.string() }) } },
    handler: ({ services }) => ({
      status: 200,
      text: { contentType: 'application/json', content: services.openApi() },
    }),
  }),
];
