import t from 'tap';
import { until } from '../../support/until.ts';
import { SERVER, startApi } from './support.ts';

t.test('/ping is always 200; /ready is 503 with the reasons when the instance is not ready', async (t) => {
  const { call, roster, health } = await startApi(t);
  t.same((await call('GET', '/ping')).body, {
    ready: true,
    services: { workflow: 'online', moray: 'online', amqp: 'online' },
  });
  t.same((await call('GET', '/ready')).body, { ready: true });
  health.database = false;
  roster.readiness = { ready: false, reasons: ['the database does not answer'] };
  const ping = await call('GET', '/ping');
  t.equal(ping.status, 200);
  t.same(ping.body, { ready: false, services: { workflow: 'online', moray: 'offline', amqp: 'online' } });
  const ready = await call('GET', '/ready');
  t.equal(ready.status, 503);
  t.same(ready.body, { ready: false, reasons: ['the database does not answer'] });
});

t.test('/diagnostics, /instances and /loglevel answer; a wrong level is refused', async (t) => {
  const { call } = await startApi(t);
  t.match((await call('GET', '/diagnostics')).body, {
    start_timestamp: '2030-01-01T00:00:00.000Z',
    memory: { rss: Number },
    taskCallbacks: {},
  });
  t.match((await call('GET', '/instances')).body, [{ agents: 2, state: 'live' }]);
  t.equal((await call('POST', '/loglevel', { level: 'debug' })).status, 200);
  t.same((await call('GET', '/loglevel')).body, { level: 20 });
  for (const level of ['loud', 5, 61, {}, undefined]) {
    const { status, body } = await call('POST', '/loglevel', { level });
    t.equal(status, 500, String(level));
    t.equal(body.errors[0].field, 'level');
  }
});

t.test('metric names start with cnapi_, counters end in _total, and no series names the instance', async (t) => {
  const { call } = await startApi(t);
  await call('GET', '/info');
  const { text, headers } = await call('GET', '/metrics');
  t.match(headers.get('content-type'), /^text\/plain/);
  const lines = text.split('\n');
  t.ok(lines.includes('cnapi_heartbeating_servers 7'));
  t.ok(lines.includes('cnapi_bus_published_total 3'));
  t.ok(lines.includes('cnapi_tasks_sent_total 6'));
  t.ok(lines.includes('cnapi_roster_losses_queued 5'));
  t.match(text, /^cnapi_database_connections \d/m);
  t.ok(lines.includes('cnapi_http_requests_total{method="GET",route="GetInfo",code="200"} 1'));
  t.ok(
    lines.includes('cnapi_build_info{version="1.0.0",node="v24",datacenter="testdc",host="s",cnapi_uuid="i"} 1'),
    'build info names the instance once',
  );
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => ({ name, type }));
  for (const { name, type } of types.filter(({ name }) => !/^(process|nodejs)_/.test(name))) {
    t.match(name, /^cnapi_/);
    t.equal(name.endsWith('_total'), type === 'counter', `${name} is a ${type}`);
  }
  t.notMatch(text, /[{,](instance|server|service)="/);
  t.match(text, /nodejs_eventloop_lag_seconds/);
  t.equal((await call('GET', '/metrics')).status, 200);
});

t.test('each task or lock is observed once, and a slow read hides no other metric', async (t) => {
  const state = { isStuck: false };
  const { call, addServer } = await startApi(t, {
    scrape: {
      lockWaits: () => (state.isStuck ? new Promise(() => undefined) : Promise.resolve([7])),
      taskTimes: async () => [
        { wait: 0.2, run: 2 },
        { wait: 30, run: null },
      ],
    },
  });
  await addServer(SERVER);
  const lines = async () => (await call('GET', '/metrics')).text.split('\n');
  const first = await lines();
  for (const line of [
    'cnapi_servers{status="running"} 1',
    'cnapi_servers{status="unknown"} 0',
    'cnapi_task_wait_seconds_bucket{le="0.5"} 1',
    'cnapi_task_wait_seconds_count 2',
    'cnapi_task_run_seconds_sum 2',
    'cnapi_lock_wait_seconds_bucket{le="5"} 0',
    'cnapi_lock_wait_seconds_bucket{le="15"} 1',
  ])
    t.ok(first.includes(line), line);
  state.isStuck = true;
  const second = await lines();
  t.ok(second.includes('cnapi_lock_wait_seconds_count 1'));
  t.ok(second.includes('cnapi_servers{status="running"} 1'));
});

t.test('two concurrent scrapes share one count of the servers, and both show it', async (t) => {
  const { promise, resolve } = Promise.withResolvers<Record<string, number>>();
  let reads = 0;
  const servers = () => {
    reads += 1;
    return promise;
  };
  const { call } = await startApi(t, { scrape: { servers, lockWaits: async () => [7] } });
  const scrapes = [call('GET', '/metrics'), call('GET', '/metrics')];
  await until(() => reads > 0, 'the count of servers to begin');
  resolve({ running: 3 });
  const texts = (await Promise.all(scrapes)).map(({ text }) => text);
  for (const text of texts) t.match(text, /^cnapi_servers\{status="running"\} 3$/m);
  t.equal(reads, 1);
});

t.test('when the database does not answer, only the metrics read from it are missing', async (t) => {
  const { call } = await startApi(t, { scrape: { servers: () => new Promise(() => undefined) } });
  const { text } = await call('GET', '/metrics');
  t.notMatch(text, /^cnapi_servers\{/m);
  t.match(text, /^cnapi_lock_wait_seconds_count 1$/m);
});
