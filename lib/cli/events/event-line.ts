/**
 * Formats events for people, one line each: time, kind, object and change. Remembers which run of
 * each instance started last, because the end of an earlier run may be reported after that.
 */
import type { FleetEvent } from '../../protocol/api/events.ts';
import type { Instance } from '../../protocol/api/instances.ts';
import { shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

export class EventFormatter {
  /** The run of each instance that was live last, by the instance's uuid. */
  readonly #runs = new Map<string, string>();

  /** `instances`: those that were listed before the first event. */
  constructor(instances: readonly Pick<Instance, 'uuid' | 'run' | 'started'>[]) {
    const inOrder = [...instances].sort((a, b) => Date.parse(a.started) - Date.parse(b.started));
    for (const { uuid, run } of inOrder) this.#runs.set(uuid, run);
  }

  format({ event, data }: FleetEvent): string {
    return escapeControls(`${shortTime(textOf(data.time))}  ${event.padEnd(8)}  ${this.#about(event, data)}`);
  }

  #about(event: string, data: Readonly<Record<string, unknown>>): string {
    const of = (name: string) => textOf(data[name]) ?? '-';
    switch (event) {
      case 'status':
        return `${of('server_uuid')}  ${of('previous')} -> ${of('status')}  ${of('reason')}`;
      case 'task':
        return `${of('server_uuid')}  ${of('id')}  ${of('task')}  ${of('status')}`;
      case 'ticket':
        return `${of('server_uuid')}  ${of('uuid')}  ${of('scope')}/${of('id')}  ${of('status')}`;
      case 'instance':
        return `${of('uuid')}  ${of('url')}  run ${of('run').slice(0, 8)}  ${this.#stateOf(of('uuid'), of('run'), of('state'))}`;
      case 'push_job':
        return `${of('id')}  ${of('status')}  ${of('node_count')} nodes`;
      case 'push_schedule':
        return this.#schedule(data);
      case 'gap':
        return of('message');
      default:
        return this.#document(data);
    }
  }

  /** The outcome of a scheduled time is printed once, when the time is used. */
  #schedule(data: Readonly<Record<string, unknown>>): string {
    const { id, status, change, at, outcome } = data;
    const line = `${id}  ${change}  ${status}`;
    return change === 'fired' || change === 'run'
      ? `${line}  ${shortTime(textOf(at))}  ${textOf(outcome) ?? '-'}`
      : line;
  }

  #document({ uuid, change, time: _, ...shown }: Readonly<Record<string, unknown>>): string {
    return `${uuid}  ${change}  ${JSON.stringify(shown)}`;
  }

  #stateOf(uuid: string, run: string, state: string): string {
    if (state === 'live') this.#runs.set(uuid, run);
    const isEarlier = (this.#runs.get(uuid) ?? run) !== run;
    return isEarlier ? `${state} (an earlier run)` : state;
  }
}

function textOf(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : String(value);
}
