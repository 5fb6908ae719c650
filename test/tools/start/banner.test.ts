import t from 'tap';
import { announcement, banner, type Ready } from '../../../tools/start/banner.ts';

const surroundings = {
  database: 'Postgres in data/postgres',
  bus: 'Redis of its own',
  serviceName: '_http._tcp.cnapi.local.cnapi.internal',
  simulated: 20,
  logs: 'data/log',
  images: undefined,
  scaleCommand: 'npm start -- --scale 4',
  stopCommand: 'npm start -- --stop',
};
const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

function ready(url: string, agent = true): Ready {
  const instance = { uuid: '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f', url, pid: 1 };
  const own = agent ? { agent: { server_uuid: SERVER, pid: 2 } } : {};
  return { ready: true, pid: 1, instances: [instance], dns: '127.0.0.1:8083', bus: 'redis', ...own };
}

const commands = (text: string) => text.split('\n').filter((line) => line.startsWith('  tools/cnapi '));

t.test('the commands that the banner proposes work from here', async (t) => {
  t.same(commands(banner(ready('http://127.0.0.1:8080'), surroundings)), [
    '  tools/cnapi servers --limit 3',
    `  tools/cnapi exec ${SERVER} -- uname -a`,
  ]);
});

t.test('with other ports than the default, the proposed commands name the URL', async (t) => {
  t.same(commands(banner(ready('http://127.0.0.1:9090', false), surroundings)), [
    '  tools/cnapi --url http://127.0.0.1:9090 servers --limit 3',
    '  tools/cnapi --url http://127.0.0.1:9090 instances',
  ]);
});

t.test('the banner names the token file and how curl sends the token, or says that none is needed', async (t) => {
  const closed = banner({ ...ready('http://127.0.0.1:9090'), token_file: '/d/config/operator.token' }, surroundings);
  t.match(closed, /token +\/d\/config\/operator\.token/);
  t.match(
    closed,
    "tools/cnapi --url http://127.0.0.1:9090 token header | curl -s -H @- 'http://127.0.0.1:9090/servers",
  );
  const open = banner(ready('http://127.0.0.1:9090'), surroundings);
  t.match(open, /token +none: every user of this machine may do everything/);
  t.match(open, "  curl -s 'http://127.0.0.1:9090/servers?limit=3'");
});

t.test('programs get a line of JSON below the banner, a terminal only the banner', async (t) => {
  const up = ready('http://127.0.0.1:9090');
  const text = banner(up, surroundings);
  t.equal(announcement(up, surroundings, true).trimEnd(), text.trimEnd());
  t.strictSame(JSON.parse(announcement(up, surroundings, false).slice(text.length)), up);
});

t.test('the banner says how containers run on this machine, or why none can', async (t) => {
  const up = ready('http://127.0.0.1:8080');
  t.notMatch(banner(up, surroundings), 'containers');
  const containers = 'No container can run on this server: the program conmon is not installed';
  t.match(
    banner({ ...up, agent: { server_uuid: SERVER, pid: 2, containers } }, surroundings),
    `  containers   ${containers}\n`,
  );
});
