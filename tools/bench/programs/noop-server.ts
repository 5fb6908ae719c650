/**
 * The floor N: restify as an instance uses it, with no work behind it. `serve` sets the objects
 * that `GET /objects` sends, encoded as JSON each time.
 */
import { readFileSync } from 'node:fs';
import restify from 'restify';
import { silentLogger } from '../../../lib/platform/log.ts';
import { answerQuestions } from '../asked.ts';

const server = restify.createServer({ name: 'floor', log: silentLogger as never });
let objects: unknown = [];

server.get('/', (_request, response, next) => {
  response.setHeader('Content-Length', 1);
  response.end('0');
  next(false);
});

server.get('/objects', (_request, response, next) => {
  const text = JSON.stringify(objects);
  response.setHeader('Content-Type', 'application/json');
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(text);
  next(false);
});

answerQuestions({
  listen: () =>
    new Promise((resolve) =>
      server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}` })),
    ),
  /** Passed as a file because of their size. */
  serve: ({ file }: { file: string }) => {
    objects = JSON.parse(readFileSync(file, 'utf8'));
  },
});
