/** `cnapi lock` against scripted instances: lost locks and suspension. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { ElapsedTime } from '../../../lib/cli/lock/elapsed-time.ts';
import { HeldTicket } from '../../../lib/cli/lock/held-ticket.ts';
import { parseLockTimes } from '../../../lib/cli/lock/lock.ts';
import { queuePosition } from '../../../lib/cli/lock/queue-position.ts';
import { CnapiClient } from '../../../lib/client/client.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import type { Ticket } from '../../../lib/protocol/api/tickets.ts';
import { type Heard, json, scripted } from '../../client/rig.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

const TICKET = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
const LOCK = ['lock', 'default', 'a', 'b'];

function ticket(status: Ticket['status'], uuid = TICKET): Ticket {
  const now = '2030-01-01T00:00:00Z';
  const times = { expires_at: now, created_at: now, updated_at: now };
  return { uuid, server_uuid: 'default', scope: 'a', id: 'b', action: 'deploy', extra: {}, status, ...times };
}

function keeperFor(t: Test, url: string, clock: Clock): HeldTicket {
  const client = new CnapiClient({
    discovery: { urls: [url] },
    credentials: async () => ({ token: undefined, ca: undefined }),
    clock,
    random: systemRandom,
  });
  t.teardown(() => client.close());
  return new HeldTicket(
    { client, clock, note: () => undefined },
    { serverUuid: 'default', scope: 'a', id: 'b', action: 'x', expiresMs: 3_600_000, marginMs: 1000, requestId: 'r' },
  );
}

const isOf = ({ method, path }: Heard, wanted: string) => `${method} ${path.split('?')[0]}` === wanted;

/**
 * An instance with one ticket, which is active and renewed unless `instead` answers and returns
 * true.
 */
function lockServer(t: Test, instead: (response: ServerResponse, heard: Heard) => unknown, queue: Ticket[] = []) {
  return scripted(t, (response, heard) => {
    if (instead(response, heard) === true) return;
    if (heard.path === '/instances') return json(response, 200, []);
    if (isOf(heard, 'POST /servers/default/tickets')) return json(response, 202, { uuid: TICKET, queue });
    if (isOf(heard, `GET /tickets/${TICKET}`) || isOf(heard, `POST /tickets/${TICKET}/renew`))
      return json(response, 200, ticket('active'));
    response.writeHead(204);
    response.end();
  });
}

t.test('a command that ends after its lock was lost has not succeeded', async (t) => {
  const gone = { code: 'ResourceNotFound', message: `no such ticket ${TICKET}` };
  const rows: [string, (response: ServerResponse) => void, { code: number; stderr?: RegExp }][] = [
    [
      'the ticket expired',
      (response) => json(response, 200, ticket('expired')),
      { code: 125, stderr: /before the command ended: ticket .* is expired/ },
    ],
    [
      'the ticket was deleted',
      (response) => json(response, 404, gone),
      { code: 125, stderr: /before the command ended: no such ticket/ },
    ],
    ['the ticket is active', (response) => json(response, 200, ticket('active')), { code: 0 }],
    ['no answer, and the ticket was valid for another minute', (response) => void response.destroy(), { code: 0 }],
  ];
  const each = rows.map(async ([name, answer, expected]) => {
    const instance = await lockServer(t, (response, heard) => {
      if (!isOf(heard, `GET /tickets/${TICKET}`)) return false;
      answer(response);
      return true;
    });
    t.match(await new Cli(t, [instance.url]).run(...LOCK, '--', 'echo', 'ran'), { stdout: 'ran\n', ...expected }, name);
    t.ok(
      instance.heard.some((heard) => isOf(heard, `PUT /tickets/${TICKET}/release`)),
      `${name}: the ticket is released`,
    );
  });
  await Promise.all(each);
});

t.test('Ctrl-Z also stops the command, which continues only after the lock is renewed', async (t) => {
  const stateOf = (pid: number | undefined) => / ([A-Z]) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1];
  for (const isLost of [false, true]) {
    let isStill = false;
    let command = 0;
    const states: (string | undefined)[] = [];
    const instance = await lockServer(t, (response, heard) => {
      if (!isStill || !isOf(heard, `POST /tickets/${TICKET}/renew`)) return false;
      states.push(stateOf(command));
      json(response, isLost ? 409 : 200, isLost ? { code: 'TicketEnded', message: 'it is over' } : ticket('active'));
      return true;
    });
    const cli = new Cli(t, [instance.url]);
    // Without a child of its own, because a shell that starts one does not show as stopped.
    const script = 'echo "is $$"; while [ ! -e go ]; do :; done; touch over; echo over';
    const running = cli.start([...LOCK, '--', 'sh', '-c', script]);
    await running.says(/is \d+\n/);
    command = Number(/is (\d+)/.exec(running.stdout())?.[1]);
    running.child.kill('SIGTSTP');
    await until(() => stateOf(running.child.pid) === 'T' && stateOf(command) === 'T', 'both to be stopped');
    writeFileSync(`${cli.home}/go`, '');
    isStill = true;
    running.child.kill('SIGCONT');
    const { code, stderr } = await running.ended;
    t.equal(states[0], 'T', 'it is renewed while the command is stopped');
    t.equal(code, isLost ? 125 : 0);
    t.equal(existsSync(`${cli.home}/over`), !isLost, isLost ? 'it did not continue' : 'it continued');
    if (isLost) t.match(stderr, 'the lock is lost, the command is stopped: it is over');
  }
});

t.test('time during which the machine was suspended counts as passed', async (t) => {
  const asleep = { ms: 0 };
  const clock: Clock = { ...systemClock, wallTime: () => systemClock.wallTime() + asleep.ms };
  const passed = new ElapsedTime(clock);
  const start = passed.now();
  // The wall clock counts whole milliseconds.
  const slept = 60_000 - 2;
  asleep.ms = 60_000;
  t.ok(passed.now() - start >= slept);
  asleep.ms = -60_000;
  const before = passed.now();
  t.ok(before - start >= slept && passed.now() - before < 60_000, 'a clock that is set back adds nothing');

  asleep.ms = 0;
  const mute = { isMute: false };
  const instance = await lockServer(t, () => mute.isMute);
  const keeper = keeperFor(t, instance.url, clock);
  await keeper.take(new AbortController().signal);
  keeper.confirm();
  mute.isMute = true;
  const confirmed = keeper.confirmHeldUntilNow().then(
    () => 'held',
    (error: Error) => error.message,
  );
  asleep.ms = 3_600_000;
  await until(() => keeper.lost.aborted, 'the loss to be noticed');
  t.throws(() => keeper.confirm(), /could not be renewed in time/);
  t.equal(
    await confirmed,
    'held',
    'an expiry after the end of the command, without an answer, does not count as a loss',
  );
  mute.isMute = false;
  await keeper.release();
});

t.test('even without time left, the lock is requested once', async (t) => {
  const instance = await lockServer(t, () => false);
  const keeper = keeperFor(t, instance.url, systemClock);
  await keeper.take(new AbortController().signal);
  t.equal(await keeper.untilActive(systemClock.now() - 1, new AbortController().signal), true);
  await keeper.release();
});

t.test('the margin before expiry leaves time to stop the command and to renew the lock', (t) => {
  for (const expires of ['3s', '4s', '60s', '1d'])
    for (const killAfter of ['0', '1s', '5s', '1h']) {
      const { expiresMs, killAfterMs, marginMs } = parseLockTimes({ expires, killAfter, conflictExitCode: '124' });
      t.ok(marginMs >= killAfterMs + Math.min(1000, expiresMs / 6), `${expires} ${killAfter}`);
      t.ok(marginMs <= expiresMs / 2, `${expires} ${killAfter}`);
    }
  t.end();
});

t.test('a free lock is not delayed by the progress message, which ignores ended tickets', async (t) => {
  const holder = ticket('active', '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b11');
  for (const queue of [[], [holder, ticket('queued')]]) {
    let asked: Heard | undefined;
    const instance = await lockServer(
      t,
      (response, heard) => {
        if (isOf(heard, 'GET /servers/default/tickets')) asked = heard;
        else if (heard.path.endsWith('/wait?timeout=0'))
          json(response, 408, { code: 'TicketWaitTimeout', message: 'not yet' });
        // The progress message has been requested by now and gets no answer.
        else if (queue.length === 0 && heard.path.includes('/wait'))
          until(() => asked, 'the request for the progress message').then(() => {
            response.writeHead(204);
            response.end();
          });
        else return false;
        return true;
      },
      queue,
    );
    const { code, stdout, stderr } = await new Cli(t, [instance.url]).run(...LOCK, '--', 'echo', 'ran');
    t.match({ code, stdout }, { code: 0, stdout: 'ran\n' });
    if (queue.length > 0) t.match(stderr, `waiting for the lock: 1 ahead, held by ticket ${holder.uuid} (deploy)`);
    else t.match(asked?.path, /open=true&scope=a&id=b/);
  }
});

t.test('the position in a queue is shown up to one hundred', (t) => {
  const others = (count: number) =>
    Array.from({ length: count }, (_, at) => ticket(at === 0 ? 'active' : 'queued', `${at}`));
  t.match(queuePosition([...others(7), ticket('queued')], TICKET), /: 7 ahead, held by ticket 0 \(deploy\)/);
  t.match(queuePosition(others(101), TICKET), /: more than 100 ahead/);
  t.equal(queuePosition([ticket('active')], TICKET), undefined, 'it is ours');
  t.equal(queuePosition(others(3), TICKET), undefined, 'it is no longer in this queue');
  t.end();
});

t.test('with instances that cannot filter tickets, tickets of others are not taken for ours', async (t) => {
  const requests: Heard[] = [];
  const instance = await lockServer(t, (response, heard) => {
    requests.push(heard);
    const created = requests.find((one) => isOf(one, 'POST /servers/default/tickets'));
    if (heard === created) response.destroy();
    else if (heard.path.includes('open=true'))
      json(response, 409, { code: 'InvalidArgument', message: 'open is not an explicitly defined parameter' });
    else if (isOf(heard, 'GET /servers/default/tickets')) {
      const reqid = String(created?.headers['x-request-id']);
      const others = [
        { ...ticket('active', '00000000-0000-4000-8000-000000000001'), reqid: 'other' },
        { ...ticket('finished', '00000000-0000-4000-8000-000000000002'), reqid },
      ];
      json(response, 200, [...others, { ...ticket('active'), reqid }]);
    } else return false;
    return true;
  });
  const ran = await new Cli(t, [instance.url]).run(...LOCK, '--', 'sh', '-c', 'echo $CNAPI_TICKET');
  t.match(ran, { code: 0, stdout: `${TICKET}\n` });
  t.equal(requests.filter((one) => isOf(one, 'POST /servers/default/tickets')).length, 1);
});

t.test('a ticket whose create failed with 503 is created again with the same key', async (t) => {
  const keys: unknown[] = [];
  const instance = await lockServer(t, (response, heard) => {
    if (heard.path.includes('open=true')) return json(response, 200, []) ?? true;
    if (!isOf(heard, 'POST /servers/default/tickets')) return false;
    keys.push(heard.headers['idempotency-key']);
    if (keys.length === 1) json(response, 503, { code: 'ServiceUnavailable', message: 'try again' });
    else json(response, 202, { uuid: TICKET, queue: [ticket('active')] });
    return true;
  });
  const ran = await new Cli(t, [instance.url]).run(...LOCK, '--', 'sh', '-c', 'echo $CNAPI_TICKET');
  t.match(ran, { code: 0, stdout: `${TICKET}\n` });
  t.equal(keys.length, 2);
  t.ok(keys[0]);
  t.equal(keys[0], keys[1]);
});

t.test('a ticket whose create is aborted without an answer is found by its key and released', async (t) => {
  const heardOf: string[] = [];
  const instance = await lockServer(t, (response, heard) => {
    if (heard.path.includes('open=true')) return json(response, 200, []) ?? true;
    if (isOf(heard, `PUT /tickets/${TICKET}/release`)) heardOf.push('release');
    if (!isOf(heard, 'POST /servers/default/tickets')) return false;
    heardOf.push(String(heard.headers['idempotency-key']));
    if (heardOf.length === 1) return response.destroy() ?? true;
    json(response, 202, { uuid: TICKET, queue: [ticket('active')] });
    return true;
  });
  const keeper = keeperFor(t, instance.url, systemClock);
  const gone = new AbortController();
  const taken = keeper.take(gone.signal);
  await until(() => heardOf.length === 1, 'the request that gets no answer');
  gone.abort(new Error('gone'));
  await t.rejects(taken, /gone/);
  t.equal(await keeper.release(), true);
  t.same(heardOf, ['r.0', 'r.0', 'release']);
});

t.test('a ticket that expired before it was found is replaced by a new one', async (t) => {
  const keys: unknown[] = [];
  const instance = await lockServer(t, (response, heard) => {
    if (!isOf(heard, 'POST /servers/default/tickets')) return false;
    keys.push(heard.headers['idempotency-key']);
    json(response, 202, { uuid: TICKET, queue: [ticket(keys.length === 1 ? 'expired' : 'active')] });
    return true;
  });
  const keeper = keeperFor(t, instance.url, systemClock);
  await keeper.take(new AbortController().signal);
  t.same(keys, ['r.0', 'r.1']);
  t.equal(await keeper.release(), true);
});
