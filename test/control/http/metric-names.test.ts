import t from 'tap';
import { startApi } from './support.ts';

t.test('metric names start with cnapi_, counters end in _total, and no series names the instance', async (t) => {
  const { call } = await startApi(t);
  await call('GET', '/info');
  const { text, headers } = await call('GET', '/metrics');
  t.match(headers.get('content-type'), /^text\/plain/);
  const lines = text.split('\n');
  t.ok(lines.includes('cnapi_tasks_sent_total 6'));
  t.match(text, /^cnapi_servers\{status="running"\} 0$/m);
  t.ok(lines.includes('cnapi_http_requests_total{method="GET",route="GetInfo",code="200"} 1'));
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => ({ name, type }));
  for (const { name, type } of types.filter(({ name }) => !/^(process|nodejs)_/.test(name))) {
    t.match(name, /^cnapi_/);
    t.equal(name.endsWith('_total'), type === 'counter', `${name} is a ${type}`);
    t.notMatch(name, /_(refused|dropped)_\w+_total$/, 'what is counted comes before what happened to it');
    t.notMatch(name, /^cnapi_(task|lock)_/, 'the part of the program has one name');
  }
  t.notMatch(text, /[{,](instance|server|service)="/);
  t.match(text, /nodejs_eventloop_lag_seconds/);
  t.equal((await call('GET', '/metrics')).status, 200);
});
