import t from 'tap';
import { DockerStatsLines } from '../../../../lib/control/vms/docker/docker-stats-lines.ts';
import { CHANNELS, streamMessage } from '../../../../lib/protocol/streams/stream.ts';

const eth = (bytes: number) => ({
  rx_bytes: bytes,
  rx_packets: 2,
  rx_errors: 0,
  rx_dropped: 1,
  tx_bytes: 7,
  tx_packets: 1,
  tx_errors: 0,
  tx_dropped: 0,
});
const sample = (second: number, change: object = {}) => ({
  at: new Date(second * 1000).toISOString(),
  clock_ms: 5_000 + second * 1000,
  memory_bytes: 1000 + second,
  memory_limit_bytes: 64_000,
  cpu_us: second * 250_000,
  processes: 3,
  processes_limit: 100,
  interfaces: { eth0: eth(100), eth1: eth(10) },
  ...change,
});
const line = (value: object) => `${JSON.stringify(value)}\n`;
const message = (text: string) => streamMessage(CHANNELS.stdout, text);

t.test('a line has what has changed since the sample before, in the form of Docker', (t) => {
  const codec = new DockerStatsLines(1.21);
  t.equal(codec.write(message(line(sample(1)))), '');
  const told = codec.write(message(line(sample(2))));
  t.match(told, /^\{.*\}\r\n$/);
  const stats = JSON.parse(told);
  t.match(stats, {
    read: '1970-01-01T00:00:02.000Z',
    preread: '1970-01-01T00:00:01.000Z',
    memory_stats: { usage: 1002, limit: 64_000 },
    pids_stats: { current: 3, limit: 100 },
    networks: { eth0: eth(100), eth1: eth(10) },
  });
  t.same(stats.blkio_stats.io_serviced_recursive, []);
  const { cpu_stats: now, precpu_stats: before } = stats;
  const used = now.cpu_usage.total_usage - before.cpu_usage.total_usage;
  const passed = now.system_cpu_usage - before.system_cpu_usage;
  t.equal((used / passed) * now.cpu_usage.percpu_usage.length * 100, 25, 'as docker stats computes it');
  t.end();
});

t.test('old clients get the sum of all interfaces', (t) => {
  for (const version of [0, 1.2]) {
    const codec = new DockerStatsLines(version);
    const { network, networks } = JSON.parse(codec.write(message(line(sample(1)) + line(sample(2)))));
    t.match(network, { rx_bytes: 110, rx_packets: 4, rx_dropped: 2, tx_bytes: 14 });
    t.equal(networks, undefined);
  }
  t.end();
});

t.test('samples may be cut, and what is none is left out', (t) => {
  const codec = new DockerStatsLines(0);
  const text = `${line(sample(1))}nonsense\n{"at":1}\n${line(sample(2, { interfaces: undefined }))}`;
  const told = [...text].map((char) => codec.write(message(char))).join('');
  t.equal(told.split('\r\n').length, 2);
  t.match(JSON.parse(told), { memory_stats: { usage: 1002 }, network: { rx_bytes: 0 } });
  t.equal(codec.write(streamMessage(CHANNELS.status, '{"exit_code":0}')), '');
  t.same(codec.read(), []);
  t.same(codec.end(), []);
  t.end();
});
