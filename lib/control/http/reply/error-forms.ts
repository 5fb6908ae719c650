/**
 * Answers requests that are refused before their route is asked, or for which there is none, in the
 * form that the routes of the path have for errors.
 */
import { MethodNotAllowedError, ResourceNotFoundError } from '../http-errors.ts';
import type { Reply, Route } from '../route.ts';
import { errorReply } from './error-mapping.ts';

export class ErrorForms {
  readonly #forms: { path: RegExp; errorReply: (error: unknown) => Reply }[] = [];

  add(route: Route): void {
    if (route.errorReply === undefined) return;
    const path = new RegExp(`^${route.path.replace(/:\w+/g, '[^/]+')}$`);
    this.#forms.push({ path, errorReply: route.errorReply });
  }

  /** `url`: as received. */
  replyTo(error: unknown, url: string): Reply {
    const path = url.split('?', 1)[0] ?? '';
    const form = this.#forms.find((one) => one.path.test(path));
    return (form?.errorReply ?? errorReply)(error);
  }

  /** The answer to a request without a route; undefined if the router failed in another way. */
  unroutedReply(error: unknown, { method, path }: { method: string; path: string }): Reply | undefined {
    const { statusCode } = error as { statusCode?: number };
    if (statusCode === 404) return errorReply(new ResourceNotFoundError(`${path} does not exist`));
    if (statusCode !== 405) return undefined;
    return this.replyTo(new MethodNotAllowedError(method), path);
  }
}
