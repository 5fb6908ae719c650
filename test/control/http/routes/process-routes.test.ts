import t from 'tap';
import { matchLists } from '../../../support/match-lists.ts';
import { startApi } from '../support.ts';

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
  matchLists(t, (await call('GET', '/diagnostics')).body, {
    start_timestamp: '2030-01-01T00:00:00.000Z',
    memory: { rss: Number },
    taskCallbacks: {},
  });
  matchLists(t, (await call('GET', '/instances')).body, [{ agents: 2, state: 'live' }]);
  t.equal((await call('POST', '/loglevel', { level: 'debug' })).status, 200);
  t.same((await call('GET', '/loglevel')).body, { level: 20 });
  for (const level of ['loud', 5, 61, {}, undefined]) {
    const { status, body } = await call('POST', '/loglevel', { level });
    t.equal(status, 500, String(level));
    t.equal(body.errors[0].field, 'level');
  }
});
