/** The question before a server is reset or its record deleted. */
import { PassThrough } from 'node:stream';
import t from 'tap';
import { confirmServer } from '../../../lib/cli/servers/confirm-server.ts';
import type { Streams } from '../../../lib/cli/terminal/streams.ts';

t.test('a person types the name of the server; nothing else confirms', async (t) => {
  const answered = async (answer: string) => {
    const stdin = Object.assign(new PassThrough(), { isTTY: true }) as unknown as NonNullable<Streams['stdin']>;
    const stderr = new PassThrough();
    const asked = confirmServer(
      { streams: { stdin, stdout: stderr, stderr } },
      { does: 'resets', name: 'web-9', yes: false },
    );
    (stdin as unknown as PassThrough).end(answer);
    const end = await asked.then(
      () => 'confirmed',
      (error: unknown) => error,
    );
    return { end, text: String(stderr.read()) };
  };
  t.match(await answered('web-9\n'), { end: 'confirmed', text: /This resets web-9\. Type its name to go on: / });
  for (const answer of ['web-8\n', 'y\n', '\n', ''])
    t.match((await answered(answer)).end, { message: 'The name was not typed; web-9 is unchanged' }, answer);
});
