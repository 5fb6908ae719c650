/**
 * How many agents an instance admits, given its measured load, and when it tells the others to
 * return.
 */
import t from 'tap';
import {
  type AdmissionState,
  admissionOf,
  admit,
  beginAdmission,
  defer,
  FIRST_RATE,
  latestReturnOf,
  MAX_CONCURRENT_ADMISSIONS,
  MAX_RATE,
  MIN_RATE,
  mayAdmit,
  measure,
  measureLoad,
  type Pressure,
} from '../../../../lib/control/roster/accept/admission.ts';
import { MAX_RETURN_MS } from '../../../../lib/protocol/limits.ts';

const IDLE: Pressure = {
  loopLateMs: 0,
  busyShare: 0.2,
  statementMs: 0,
  roundTripMs: 2,
  sessions: 1_000,
  quiet: 0,
  backedUp: 0,
  concurrentAdmissions: 0,
};
const BUSY = { busyShare: 1 };
const LATE = { loopLateMs: 1_200 };

const table: { name: string; pressure: Partial<Pressure>; load: string }[] = [
  { name: 'an idle instance is on time', pressure: {}, load: 'on-time' },
  {
    name: 'an instance whose event loop is nearly always occupied is busy',
    pressure: { busyShare: 0.95 },
    load: 'busy',
  },
  { name: 'an instance whose tick is a little late is busy', pressure: { loopLateMs: 150 }, load: 'busy' },
  { name: 'an instance whose tick is half a second late is late', pressure: { loopLateMs: 500 }, load: 'late' },
  { name: 'an instance whose statements take half a second is busy', pressure: { statementMs: 500 }, load: 'busy' },
  { name: 'an instance whose statements take two seconds is late', pressure: { statementMs: 2_000 }, load: 'late' },
  {
    name: 'an instance whose database is far away is on time while its statements take no longer than that explains',
    pressure: { statementMs: 1_500, roundTripMs: 600 },
    load: 'on-time',
  },
  {
    name: 'an instance whose database is far away and slow is busy',
    pressure: { statementMs: 1_900, roundTripMs: 600 },
    load: 'busy',
  },
  {
    name: 'however far away the database is, agents do not wait longer than they can',
    pressure: { statementMs: 2_000, roundTripMs: 1_000 },
    load: 'late',
  },
  { name: 'a few silent agents do not make an instance late', pressure: { quiet: 50 }, load: 'on-time' },
  {
    name: 'ten silent agents do not make a small instance late',
    pressure: { sessions: 20, quiet: 10 },
    load: 'on-time',
  },
  { name: 'many silent agents at once make an instance late', pressure: { quiet: 51 }, load: 'late' },
  { name: 'many connections that read nothing make an instance late', pressure: { backedUp: 51 }, load: 'late' },
];
for (const { name, pressure, load } of table) t.equal(measureLoad({ ...IDLE, ...pressure }).load, load, name);

/** The state after this number of periods of 250 ms under this pressure. */
function measured(state: AdmissionState, pressure: Partial<Pressure>, periods: number): AdmissionState {
  let after = state;
  for (let each = 0; each < periods; each++) after = measure(after, { ...IDLE, ...pressure }, after.measuredAt + 250);
  return after;
}

/** How many of `offered` are admitted at this moment. */
function come(state: AdmissionState, offered: number, now = state.measuredAt) {
  let after = state;
  let admitted = 0;
  while (admitted < offered && mayAdmit(after, 0, now)) {
    after = admit(after, now);
    admitted += 1;
  }
  return { state: after, admitted };
}

t.test('the admission rate follows the load', async (t) => {
  const begun = beginAdmission(0);
  t.equal(begun.rate, FIRST_RATE);
  t.equal(measured(begun, BUSY, 4).rate, FIRST_RATE / 2, 'one second of being busy halves the rate');
  t.equal(measured(begun, BUSY, 12).rate, FIRST_RATE / 8, 'three seconds of being busy halve it three times');
  t.equal(measured(begun, BUSY, 1_000).rate, MIN_RATE, 'the rate does not fall below the minimum');
  t.equal(measured(begun, {}, 1_000).rate, MAX_RATE, 'while on time, the rate grows to the maximum');
  const recovered = measured(measured(begun, BUSY, 1_000), {}, 60);
  t.ok(recovered.rate >= FIRST_RATE, 'the rate recovers after a quarter of a minute on time');
});

/**
 * The rate after so many seconds in which as many agents came as were admitted, under this load.
 */
function crowded(pressure: Partial<Pressure>, { perSecond, seconds }: { perSecond: number; seconds: number }): number {
  let state = beginAdmission(0);
  for (let period = 0; period < 4 * seconds; period++) {
    for (let each = 0; each < perSecond / 4; each++) state = admit(state, state.measuredAt);
    state = measured(state, pressure, 1);
  }
  return state.rate;
}

t.test('the admission rate follows the number that can be admitted', async (t) => {
  const full = { concurrentAdmissions: MAX_CONCURRENT_ADMISSIONS };
  const rate = crowded(full, { perSecond: 120, seconds: 3 });
  t.ok(
    rate > 120 && rate <= 150,
    `with many concurrent admissions, the rate is a little above what is admitted: ${rate}`,
  );
  t.ok(
    crowded({}, { perSecond: 120, seconds: 3 }) > FIRST_RATE,
    'with few concurrent admissions, agents may come faster',
  );
  const busy = crowded(BUSY, { perSecond: 120, seconds: 2 });
  t.ok(busy > 30 && busy < 120, `a busy instance begins with what it admits, not with what it would admit: ${busy}`);
});

t.test('an instance admits agents at its rate', async (t) => {
  const slow = measured(beginAdmission(0), BUSY, 1_000);
  const first = come(measured(slow, BUSY, 8), 1_000);
  t.ok(first.admitted <= 20, 'a burst is small');
  let state = first.state;
  let admitted = 0;
  for (let each = 0; each < 40; each++) {
    const next = come(measured(state, BUSY, 1), 1_000);
    state = next.state;
    admitted += next.admitted;
  }
  t.ok(Math.abs(admitted - 10 * MIN_RATE) <= 1, `${admitted} admitted in ten seconds`);
});

t.test('the first burst is twenty agents', async (t) => {
  let state = beginAdmission(0);
  for (let each = 0; each < 19; each++) state = admit(state, 0);
  t.ok(mayAdmit(state, 0, 0), 'one more');
  t.notOk(mayAdmit(admit(state, 0), 0, 0));
});

t.test('an instance that is late, full or stalled admits nobody', async (t) => {
  const state = beginAdmission(0);
  t.ok(mayAdmit(state, 0, 10), 'an instance on time admits one');
  t.ok(mayAdmit(measured(state, LATE, 1), 0, 250), 'an instance that has just become late admits one');
  t.notOk(mayAdmit(measured(state, LATE, 1), 1, 250), 'it does not admit a second one meanwhile');
  t.notOk(mayAdmit(measured(state, LATE, 50), 0, 12_500), 'an instance that has been late for long admits nobody');
  const late = measured(beginAdmission(60_000), LATE, 1);
  t.ok(mayAdmit(late, 0, 70_249), 'it admits one at a time for ten seconds');
  t.notOk(mayAdmit(late, 0, 70_250));
  t.ok(mayAdmit(measured(state, { loopLateMs: 900 }, 1), 0, 250), 'one short stall does not make it late');
  t.ok(mayAdmit(measured(measured(state, LATE, 50), {}, 4), 5, 13_510), 'it admits again once it is on time');
  t.notOk(
    mayAdmit(state, MAX_CONCURRENT_ADMISSIONS, 10),
    'it admits nobody while the maximum number is being admitted',
  );
  t.notOk(mayAdmit(state, 1, 1_500), 'it admits nobody before it has measured how long it stalled');
});

const KNOWN = { arrival: 'known', hasRoom: true } as const;
const NO_ROOM = { arrival: 'known', hasRoom: false } as const;

t.test('each refused agent is told a different time to return', async (t) => {
  const times: number[] = [];
  let state = measured(beginAdmission(0), BUSY, 8);
  const { rate } = state;
  for (let each = 0; each < 2 * rate; each++) {
    const deferred = defer(state, KNOWN, 2_000);
    state = deferred.state;
    times.push(deferred.retryAfterMs);
  }
  t.ok(times.every((ms) => ms >= 1_000 && ms <= MAX_RETURN_MS));
  t.same(
    times,
    [...times].sort((one, other) => one - other),
    'no time is earlier than the one before',
  );
  t.ok(Math.max(...times) <= 1_010, 'at twice the rate, the refused agents are spread over the next second');
  const waiting = (2 * rate * MAX_RETURN_MS) / 1_000;
  for (let each = 0; each < waiting; each++) state = defer(state, KNOWN, 2_000).state;
  t.equal(defer(state, KNOWN, 2_000).retryAfterMs, MAX_RETURN_MS, 'no time exceeds the longest wait of our agents');
  const full = beginAdmission(0);
  let last = defer(full, NO_ROOM, 0);
  for (let each = 1; each < 1_000; each++) last = defer(last.state, NO_ROOM, 0);
  t.equal(last.retryAfterMs, 10_000, 'without room, a hundred agents return per second');
});

t.test('whoever is not known cannot delay the return of agents that are', async (t) => {
  let state = beginAdmission(0);
  for (let each = 0; each < 1_000_000 && state.bookedUntil.unknown < MAX_RETURN_MS; each++)
    ({ state } = defer(state, { arrival: 'unknown', hasRoom: true }, 0));
  t.equal(defer(state, { arrival: 'unknown', hasRoom: true }, 0).retryAfterMs, MAX_RETURN_MS, 'the others are spread');
  t.equal(defer(state, KNOWN, 0).retryAfterMs, 1_000);
});

t.test('the last return time is the latest that any agent was told', async (t) => {
  let state = beginAdmission(0);
  t.equal(latestReturnOf(state), Number.NEGATIVE_INFINITY, 'no agent was told');
  const told: number[] = [];
  for (const [now, deferral] of [
    [0, KNOWN],
    [100, NO_ROOM],
    ...Array.from({ length: 300 }, () => [200, { arrival: 'unknown', hasRoom: false }] as const),
    [1_500, KNOWN],
    [90_000, KNOWN],
  ] as const) {
    const deferred = defer(state, deferral, now);
    state = deferred.state;
    told.push(now + deferred.retryAfterMs);
    t.ok(Math.abs(latestReturnOf(state) - Math.max(...told)) <= 1, `at ${now} ms`);
  }
});

t.test('other instances are told whether this one admits agents', async (t) => {
  const state = beginAdmission(0);
  t.equal(admissionOf(state, true, 0), 'open');
  const { state: deferring } = defer(state, KNOWN, 0);
  t.equal(admissionOf(deferring, true, 9_999), 'paced', 'it has just told an agent to return');
  t.equal(admissionOf(deferring, true, 10_001), 'open', 'it has told no agent for a while');
  t.equal(admissionOf(state, false, 0), 'closed', 'it has no room');
  t.equal(admissionOf(measured(state, LATE, 1), true, 250), 'closed', 'it is late');
});
