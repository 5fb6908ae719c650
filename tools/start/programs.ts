/**
 * How each of our own programs is started: its arguments, and its configuration file if it has one.
 */
import path from 'node:path';
import type { Command } from './child.ts';
import { writePrivate } from './persisted-settings.ts';
import { projectRoot } from './place.ts';

const datacenter = 'local';
const domain = 'cnapi.internal';

/** The SRV name under which the name server publishes the instances. */
export const serviceName = `_http._tcp.cnapi.${datacenter}.${domain}`;

/**
 * All callers have the same source address here, so a limit for one source would limit all of them
 * together.
 */
const unlimited = { requestsPerSecond: 0, connectionsPerSource: 0, handshakesPerSecond: 0 };

export interface InstancePlan {
  cnapiUuid: string;
  port: number;
  databaseUrl: string;
  redisUrl: string | undefined;
  access: 'open' | 'tokens';
}

export function instanceCommand(data: string, { redisUrl, ...plan }: InstancePlan): Command {
  const bus = redisUrl === undefined ? {} : { redisUrl };
  const limits = plan.access === 'open' ? {} : unlimited;
  const config = { ...plan, host: '127.0.0.1', datacenter, domain, ...bus, ...limits };
  const file = path.join(data, 'config', `instance-${plan.port}.json`);
  writePrivate(file, `${JSON.stringify(config, null, 2)}\n`);
  return nodeCommand('server.ts', ['--config', file]);
}

export function nameServerCommand(data: string, port: number, databaseUrl: string): Command {
  const file = path.join(data, 'config', 'name-server.json');
  writePrivate(file, `${JSON.stringify({ databaseUrl, host: '127.0.0.1', port, datacenter, domain }, null, 2)}\n`);
  return nodeCommand('lib/name-server/main.ts', ['--config', file]);
}

export interface AgentPlan {
  dns: string;
  tokenFile: string | undefined;
  containers: boolean;
}

export function agentCommand(data: string, { dns, tokenFile, containers }: AgentPlan): Command {
  const args = [...discovery(dns), ...tokenFrom(tokenFile), '--data', path.join(data, 'agent')];
  if (containers) args.push('--containers', '--image-path', imageFolder(data));
  return nodeCommand('lib/agent/main.ts', args);
}

/** Users put archives of images there. */
export const imageFolder = (data: string): string => path.join(data, 'images');

export interface FleetPlan {
  dns: string;
  agents: number;
  tokenFile: string | undefined;
}

export function fleetCommand(data: string, { dns, agents, tokenFile }: FleetPlan): Command {
  const args = ['--agents', String(agents), ...discovery(dns), ...tokenFrom(tokenFile)];
  return nodeCommand('lib/agent/simulated/main.ts', [...args, '--data', path.join(data, 'fleet')]);
}

function tokenFrom(file: string | undefined): string[] {
  return file === undefined ? [] : ['--token-file', file];
}

function discovery(dns: string): string[] {
  return ['--dns', dns, '--datacenter', datacenter, '--domain', domain];
}

function nodeCommand(program: string, args: readonly string[]): Command {
  return {
    file: process.execPath,
    args: [...process.execArgv, path.join(projectRoot, program), ...args],
    env: environmentForChildren(process.env),
  };
}

const perInstance = /^CNAPI_(UUID|CNAPI_UUID|HOST|PORT|ADVERTISE_HOST|DATABASE_URL|REDIS_URL|DATACENTER|DOMAIN)$/;

/**
 * The environment without variables that would give all instances the same port or name; tunables
 * are kept.
 */
export function environmentForChildren(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !perInstance.test(name)));
}
