/**
 * Health, information about the answering process, its log level, its metrics and the API
 * description.
 */
import { z } from 'zod';
import { answer, contracts, extensibleObject } from './contract/contract.ts';
import { number } from './contract/rules.ts';

const LOG_LEVELS = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 } as const;
type LevelName = keyof typeof LOG_LEVELS;

const online = z.enum(['online', 'offline']);
const numbers = z.record(z.string(), z.number());

/** A bunyan level, by name or number. */
const logLevel = z
  .union(
    [z.enum(Object.keys(LOG_LEVELS) as LevelName[]).transform((name) => LOG_LEVELS[name]), number()],
    'value was not a log level',
  )
  .refine((level) => Number.isInteger(level) && level >= 10 && level <= 60, 'value was not a log level from 10 to 60');

export const processContracts = contracts({
  Ping: {
    method: 'GET',
    path: '/ping',
    summary: 'Whether this instance, its database and its broker or bus work; always 200, see /ready for a status code',
    tag: 'misc',
    origin: 'reference',
    requiredRole: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: {
      200: {
        description:
          'moray is the database, amqp the broker of Ur (the bus, if there is none); workflow is served from within',
        schema: answer({
          ready: z.boolean(),
          services: answer({ workflow: online, moray: online, amqp: online }),
        }),
        example: { ready: true, services: { workflow: 'online', moray: 'online', amqp: 'online' } },
      },
    },
  },
  Ready: {
    method: 'GET',
    path: '/ready',
    summary: 'For load balancers: whether this instance should be sent requests',
    tag: 'misc',
    origin: 'own',
    requiredRole: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: {
      200: { description: 'Yes', schema: answer({ ready: z.literal(true) }), example: { ready: true } },
      503: { description: 'No, and why', schema: answer({ ready: z.literal(false), reasons: z.array(z.string()) }) },
    },
  },
  GetInfo: {
    method: 'GET',
    path: '/info',
    summary: 'The version that answers',
    tag: 'misc',
    origin: 'reference',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: answer({ version: z.string() }), example: { version: '0.2.0' } } },
  },
  GetDiagnostics: {
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
        schema: answer({
          start_timestamp: z.string(),
          memory: numbers,
          taskCallbacks: answer({}).describe("Always empty; for clients of Triton's CNAPI"),
          pendingActivationsByServer: answer({}).describe("Always empty; for clients of Triton's CNAPI"),
          tasks: numbers,
          waitlist: numbers,
        }),
      },
    },
  },
  GetLogLevel: {
    method: 'GET',
    path: '/loglevel',
    summary: "This process's log level, bunyan's number",
    tag: 'misc',
    origin: 'reference',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: answer({ level: z.int() }), example: { level: 30 } } },
  },
  SetLogLevel: {
    method: 'POST',
    path: '/loglevel',
    summary: "Sets this process's log level, by bunyan's name or number",
    tag: 'misc',
    origin: 'reference',
    params: z.object({ level: logLevel }),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'Set' } },
  },
  GetMetrics: {
    method: 'GET',
    path: '/metrics',
    summary: 'Metrics of this instance, for Prometheus',
    tag: 'misc',
    origin: 'own',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.string(), contentType: 'text/plain' } },
  },
  GetOpenApi: {
    method: 'GET',
    path: '/openapi.json',
    summary: 'This document',
    tag: 'misc',
    origin: 'own',
    requiredRole: 'anyone',
    params: z.object({}),
    lenient: true,
    preconditions: [],
    responses: { 200: { description: 'OpenAPI 3.1', schema: extensibleObject({ openapi: z.string() }) } },
  },
});
