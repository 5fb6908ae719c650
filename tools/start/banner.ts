/** What `npm start` prints once everything is up. Pure. */
export interface ReadyInstance {
  uuid: string;
  url: string;
  pid: number;
}

/** The line for programs, last on stdout. */
export interface Ready {
  ready: true;
  pid: number;
  instances: ReadyInstance[];
  dns: string;
  bus: 'redis' | 'postgres';
  agent?: { server_uuid: string; pid: number };
}

export interface Surroundings {
  /** Where Postgres and the bus are, in words. */
  database: string;
  bus: string;
  serviceName: string;
  /** Simulated servers. */
  simulated: number;
  logs: string;
  /** The commands that give it another instance, and that end it. */
  scaleCommand: string;
  stopCommand: string;
}

export function banner(ready: Ready, surroundings: Surroundings): string {
  const { database, bus, serviceName, simulated, logs, scaleCommand, stopCommand } = surroundings;
  const url = ready.instances[0]?.url ?? '';
  const rows = [
    ...ready.instances.map((instance) => ['instance', `${instance.url}  ${instance.uuid}`]),
    ['names', `${ready.dns}  SRV ${serviceName}`],
    ['database', database],
    ['bus', bus],
    ...(ready.agent ? [['this machine', ready.agent.server_uuid]] : []),
    ...(simulated > 0 ? [['simulated', `${simulated} servers`]] : []),
    ['logs', logs],
  ];
  return [
    '',
    'cnapi is up.',
    ...rows.map(([what, where]) => `  ${what?.padEnd(13)}${where}`),
    '',
    'Try:',
    ...[...requests(url, ready.agent?.server_uuid), scaleCommand, stopCommand].map((command) => `  ${command}`),
    '',
    'An instance that ends comes up again on its port. kill -TERM PID lets it hand its agents over first.',
    '',
  ].join('\n');
}

/** To be copied. The command line asks at port 8080 when nothing is said. */
function requests(url: string, server: string | undefined): string[] {
  const where = url === DEFAULT_URL ? '' : `--url ${url} `;
  const work = server === undefined ? 'instances' : `exec ${server} -- uname -a`;
  return [`tools/cnapi ${where}servers --limit 3`, `tools/cnapi ${where}${work}`, `curl -s '${url}/servers?limit=3'`];
}

const DEFAULT_URL = 'http://127.0.0.1:8080';
