/**
 * A reader of GET /events: the events received so far, and the position from which it would
 * continue.
 */
import { until } from './until.ts';

export interface HeardEvent {
  id: string;
  kind: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test is about the form of its own kind
  data: any;
}

export class EventFollower {
  readonly events: HeardEvent[] = [];
  /** Comment lines of the stream. */
  readonly comments: string[] = [];
  /** The last id from the server; sent when it reconnects. */
  lastEventId = '';
  isEnded = false;
  readonly status: number;
  readonly #abort: AbortController;

  private constructor(response: Response, abort: AbortController) {
    this.status = response.status;
    this.#abort = abort;
    void this.#read(response);
  }

  static open(url: string, query = '', lastEventId = ''): Promise<EventFollower> {
    return EventFollower.openAt(`${url}/events${query}`, lastEventId);
  }

  /** Any other stream. */
  static async openAt(url: string, lastEventId = ''): Promise<EventFollower> {
    const abort = new AbortController();
    const headers: Record<string, string> = lastEventId === '' ? {} : { 'Last-Event-ID': lastEventId };
    const response = await fetch(url, { headers, signal: abort.signal });
    return new EventFollower(response, abort);
  }

  /** Resolves to the first event, received already or later, for which `isIt` is true. */
  next(isIt: (event: HeardEvent) => boolean, what: string): Promise<HeardEvent> {
    return until(() => this.events.find(isIt), what);
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(response: Response): Promise<void> {
    let text = '';
    try {
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        text += chunk;
        const frames = text.split('\n\n');
        text = frames.pop() ?? '';
        for (const frame of frames) this.#take(frame);
      }
    } catch {
      // The stream was cut off, or closed by the test.
    }
    this.isEnded = true;
  }

  #take(frame: string): void {
    if (frame.startsWith(':')) return void this.comments.push(frame);
    const fields = Object.fromEntries(frame.split('\n').map((line) => line.split(/: (.*)/s)));
    this.lastEventId = fields.id;
    if (fields.data !== undefined)
      this.events.push({ id: fields.id, kind: fields.event, data: JSON.parse(fields.data) });
  }
}
