/**
 * Answers requests that are refused before their route is asked, or for which there is none, in the
 * form that the routes of the path have for errors.
 */
import { ResourceNotFoundError } from '../../request-errors.ts';
import { MethodNotAllowedError } from '../http-errors.ts';
import type { Route, RouteAnswer } from '../route.ts';
import { errorAnswer } from './error-mapping.ts';

export class ErrorForms {
  readonly #forms: { path: RegExp; errorAnswer: (error: unknown) => RouteAnswer }[] = [];

  add(route: Route): void {
    if (route.errorAnswer === undefined) return;
    const path = new RegExp(`^${route.path.replace(/:\w+/g, '[^/]+')}$`);
    this.#forms.push({ path, errorAnswer: route.errorAnswer });
  }

  /** `url`: as received. */
  answerTo(error: unknown, url: string): RouteAnswer {
    const path = url.split('?', 1)[0] ?? '';
    const form = this.#forms.find((one) => one.path.test(path));
    return (form?.errorAnswer ?? errorAnswer)(error);
  }

  /** The answer to a request without a route; undefined if the router failed in another way. */
  unroutedAnswer(error: unknown, { method, path }: { method: string; path: string }): RouteAnswer | undefined {
    const { statusCode } = error as { statusCode?: number };
    if (statusCode === 404) return errorAnswer(new ResourceNotFoundError(`${path} does not exist`));
    if (statusCode !== 405) return undefined;
    return this.answerTo(new MethodNotAllowedError(method), path);
  }
}
