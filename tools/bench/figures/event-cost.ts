/**
 * The cost of the event log: tasks per second with every change recorded and one follower at each
 * instance, compared with the same zone with the triggers of tasks disabled and no follower. The
 * two take turns, so that both run under the same conditions.
 */
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { runLanes } from '../lanes.ts';
import { median } from '../statistics.ts';
import type { Zone } from '../zone.ts';
import { IN_FLIGHT, loadOf, SERVERS } from './task-rate.ts';

export const eventCost: Figure = {
  name: 'event-cost',
  says: 'tasks per second with the log of events and followers, compared with the same without them',
  seconds: 75,
  measure,
};

async function measure({ isQuick, startZone }: BenchContext): Promise<readonly Result[]> {
  const { rounds, seconds } = isQuick ? { rounds: 1, seconds: 1 } : { rounds: 6, seconds: 5 };
  const zone = await startZone();
  await zone.addFleet({ agents: SERVERS });
  await zone.untilKnown(SERVERS);
  using caller = new BenchCaller();
  const runOne = await loadOf(zone);
  let begun = 0;
  const rate = () => runLanes(IN_FLIGHT, seconds, () => runOne(caller, begun++));
  await rate();
  const [followed, unfollowed, events]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < rounds; round += 1) {
    await setTaskEvents(zone, false);
    unfollowed.push(await rate());
    await setTaskEvents(zone, true);
    const followers = await Promise.all(zone.instances.map(({ url }) => follow(url)));
    const before = begun;
    followed.push(await rate());
    events.push(...followers.map((stop) => stop() / (begun - before)));
  }
  return [
    {
      what: 'tasks per second, 64 in flight, every change sent to three followers',
      value: median(followed),
      unit: '/s',
      floor: { of: 'the same without followers', value: median(unfollowed) },
      notes: [
        `medians of ${rounds} × ${seconds} s by turns; ratios ${followed.map((one, n) => (one / (unfollowed[n] ?? Number.NaN)).toFixed(2)).join(', ')}`,
        `each follower read ${median(events).toFixed(2)} events for each task by the end of its turn, of 3`,
      ],
    },
  ];
}

async function setTaskEvents(zone: Zone, isOn: boolean): Promise<void> {
  for (const trigger of ['cnapi_log_insert', 'cnapi_log_update'])
    await zone.sql(`alter table cnapi_tasks ${isOn ? 'enable' : 'disable'} trigger ${trigger}`);
}

/**
 * Reads events until the returned function is called, which returns the number of task events
 * received.
 */
async function follow(url: string): Promise<() => number> {
  const abort = new AbortController();
  const response = await fetch(`${url}/events?kind=task`, { signal: abort.signal });
  let count = 0;
  const read = async () => {
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? [])
      count += chunk.split('event: task').length - 1;
  };
  // It ends when it is aborted.
  read().catch(() => {});
  return () => {
    abort.abort();
    return count;
  };
}
