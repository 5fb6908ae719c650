/**
 * Parses server-sent events from the pieces of a body (HTML standard, section 9.2), with limits.
 * Pure; used by follow.ts.
 */

import { CnapiError } from '../platform/errors.ts';

export interface ReceivedEvent {
  id: string | undefined;
  name: string;
  data: string;
}

/** Large enough for a task's end, which is one event with all kept output as JSON. */
const MAX_EVENT_CHARACTERS = 32 * 1024 * 1024;

/** Not repeatable: the event would be as large again. */
export class EventTooLargeError extends CnapiError {
  constructor() {
    super('EventTooLarge', 502, `an event has more than ${MAX_EVENT_CHARACTERS} characters`);
  }
}

export class EventParser {
  readonly #decoder = new TextDecoder();
  #pending: string[] = [];
  #pendingLength = 0;
  #id: string | undefined;
  #lastId: string | undefined;
  #name = '';
  #data: string[] = [];
  #dataLength = 0;

  /** The position from which to resume. An instance may also set it without an event. */
  get lastId(): string | undefined {
    return this.#lastId;
  }

  /** Returns the events that this piece completes. @throws EventTooLargeError */
  push(piece: Uint8Array): ReceivedEvent[] {
    const text = this.#decoder.decode(piece, { stream: true });
    const events: ReceivedEvent[] = [];
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      const line = this.#pending.join('') + text.slice(start, end);
      this.#pending = [];
      this.#pendingLength = 0;
      start = end + 1;
      const event = this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (event !== undefined) events.push(event);
    }
    this.#keep(text.slice(start));
    return events;
  }

  #keep(rest: string): void {
    if (rest === '') return;
    this.#pendingLength += rest.length;
    if (this.#pendingLength > MAX_EVENT_CHARACTERS) throw new EventTooLargeError();
    this.#pending.push(rest);
  }

  #line(line: string): ReceivedEvent | undefined {
    if (line === '') return this.#dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'id' && !value.includes('\0')) this.#id = value;
    if (field === 'event') this.#name = value;
    if (field === 'data') {
      this.#dataLength += value.length;
      if (this.#dataLength > MAX_EVENT_CHARACTERS) throw new EventTooLargeError();
      this.#data.push(value);
    }
    return undefined;
  }

  #dispatch(): ReceivedEvent | undefined {
    const event = { id: this.#id, name: this.#name || 'message', data: this.#data.join('\n') };
    const isEmpty = this.#data.length === 0;
    this.#lastId = this.#id;
    this.#name = '';
    this.#data = [];
    this.#dataLength = 0;
    return isEmpty ? undefined : event;
  }
}
