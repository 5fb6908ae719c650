/** How each of our own programs is started: its arguments, and a configuration file where it takes one. */
import path from 'node:path';
import type { Command } from './child.ts';
import { writePrivate } from './keepsakes.ts';
import { projectRoot } from './place.ts';

const datacenter = 'local';
const domain = 'cnapi.internal';

/** The SRV name under which the name server has the instances. */
export const serviceName = `_http._tcp.cnapi.${datacenter}.${domain}`;

export interface InstancePlan {
  cnapiUuid: string;
  port: number;
  databaseUrl: string;
  redisUrl: string | undefined;
}

export function instanceCommand(data: string, { redisUrl, ...plan }: InstancePlan): Command {
  const config = { ...plan, host: '127.0.0.1', datacenter, domain, ...(redisUrl === undefined ? {} : { redisUrl }) };
  const file = path.join(data, 'config', `instance-${plan.port}.json`);
  writePrivate(file, `${JSON.stringify(config, null, 2)}\n`);
  return nodeCommand('server.ts', ['--config', file]);
}

export function nameServerCommand(data: string, port: number, databaseUrl: string): Command {
  const file = path.join(data, 'config', 'name-server.json');
  writePrivate(file, `${JSON.stringify({ databaseUrl, host: '127.0.0.1', port, datacenter, domain }, null, 2)}\n`);
  return nodeCommand('tools/name-server.ts', ['--config', file]);
}

export function agentCommand(data: string, dns: string): Command {
  return nodeCommand('lib/cn-agent/main.ts', [...discovery(dns), '--data', path.join(data, 'agent')]);
}

export function fleetCommand(data: string, dns: string, agents: number): Command {
  const args = ['--agents', String(agents), ...discovery(dns), '--data', path.join(data, 'fleet')];
  return nodeCommand('lib/fleet/main.ts', args);
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

/** The environment without what would give all instances the same port or name; tunables go through. */
export function environmentForChildren(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !perInstance.test(name)));
}
