/** One GET of `npm start` from an instance, and its whole answer. */
import { targetOf } from '../../lib/platform/http-client/connect.ts';
import { HttpClient, type HttpRequest } from '../../lib/platform/http-client/http-client.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';

interface Question extends Pick<HttpRequest, 'headers'> {
  /** Until the end of the answer. */
  withinMs: number;
}

const MAX_BYTES = 64 * 1024 * 1024;
const http = new HttpClient({ clock: systemClock });

/** @throws HttpError when there is no complete answer */
export async function httpGet(url: string, { withinMs, ...rest }: Question): Promise<{ status: number; text: string }> {
  const { pathname, search } = new URL(url);
  const request = { target: targetOf(url), method: 'GET', path: pathname + search, totalMs: withinMs } as const;
  const answer = await http.request({ ...request, ...rest, keepAlive: true });
  return { status: answer.status, text: await answer.text({ maxBytes: MAX_BYTES }) };
}
