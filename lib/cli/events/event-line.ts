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
    const field = (name: string) => textOf(data[name]) ?? '-';
    switch (event) {
      case 'status':
        return `${field('server_uuid')}  ${field('previous')} -> ${field('status')}  ${field('reason')}`;
      case 'task':
        return `${field('server_uuid')}  ${field('id')}  ${field('task')}  ${field('status')}`;
      case 'ticket':
        return `${field('server_uuid')}  ${field('uuid')}  ${field('scope')}/${field('id')}  ${field('status')}`;
      case 'instance':
        return `${field('uuid')}  ${field('url')}  run ${field('run').slice(0, 8)}  ${this.#stateOf(field('uuid'), field('run'), field('state'))}`;
      case 'push_job':
        return `${field('id')}  ${field('status')}  ${field('node_count')} nodes`;
      case 'push_schedule':
        return this.#schedule(data);
      case 'gap':
        return field('message');
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
