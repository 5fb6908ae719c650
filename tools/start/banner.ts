/** The text that `npm start` prints when everything is up. Pure. */
export interface ReadyInstance {
  uuid: string;
  url: string;
  pid: number;
}

/** The line for programs, the last one on stdout; a terminal gets none. */
export interface Ready {
  ready: true;
  pid: number;
  instances: ReadyInstance[];
  dns: string;
  bus: 'redis' | 'postgres';
  agent?: {
    server_uuid: string;
    pid: number;
    /** A sentence: how containers run here, or why none can; only of an agent with --containers. */
    containers?: string;
  };
  /** The file with an operator's token; absent with `--open`. */
  token_file?: string;
}

export interface Surroundings {
  /** Descriptions of where Postgres and the bus are. */
  database: string;
  bus: string;
  serviceName: string;
  /** Number of simulated servers. */
  simulated: number;
  logs: string;
  /** Where archives of images for VMs are put; undefined if this machine runs no VMs. */
  images: string | undefined;
  /** The commands that add an instance and that stop everything. */
  scaleCommand: string;
  stopCommand: string;
}

/** The banner, and below it the ready line unless a person reads. */
export function announcement(ready: Ready, surroundings: Surroundings, isTerminal: boolean): string {
  const text = banner(ready, surroundings);
  return isTerminal ? `${text}\n` : `${text}\n${JSON.stringify(ready)}\n`;
}

export function banner(ready: Ready, surroundings: Surroundings): string {
  const { database, bus, serviceName, simulated, logs, images, scaleCommand, stopCommand } = surroundings;
  const url = ready.instances[0]?.url ?? '';
  const rows = [
    ...ready.instances.map((instance) => ['instance', `${instance.url}  ${instance.uuid}`]),
    ['name server', `${ready.dns}  DNS, SRV ${serviceName}`],
    ['database', database],
    ['bus', bus],
    ...(ready.agent ? [['this machine', ready.agent.server_uuid]] : []),
    ['token', ready.token_file ?? 'none: every user of this machine may do everything'],
    ...(simulated > 0 ? [['simulated', `${simulated} servers`]] : []),
    ...(ready.agent?.containers === undefined ? [] : [['containers', ready.agent.containers]]),
    ...(images === undefined ? [] : [['images', `${images}  put archives there for cnapi image load`]]),
    ['logs', logs],
  ];
  return [
    '',
    'cnapi is up.',
    ...rows.map(([what, where]) => `  ${what?.padEnd(13)}${where}`),
    '',
    'Try:',
    ...[...requests(url, ready), scaleCommand, stopCommand].map((command) => `  ${command}`),
    '',
    'An instance that ends comes up again on its port. kill -TERM PID lets it hand its agents over first.',
    '',
  ].join('\n');
}

/** Commands to copy. The command line uses port 8080 by default. */
function requests(url: string, { agent, token_file }: Ready): string[] {
  const cnapi = url === DEFAULT_URL ? 'tools/cnapi' : `tools/cnapi --url ${url}`;
  const work = agent === undefined ? 'instances' : `exec ${agent.server_uuid} -- uname -a`;
  const list = `'${url}/servers?limit=3'`;
  const curl = token_file === undefined ? `curl -s ${list}` : `${cnapi} token header | curl -s -H @- ${list}`;
  return [`${cnapi} servers --limit 3`, `${cnapi} ${work}`, curl];
}

const DEFAULT_URL = 'http://127.0.0.1:8080';
