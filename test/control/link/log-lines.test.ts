import t from 'tap';
import { freshZone } from '../../support/apps.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.test('what agents send causes few and short lines of the log', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const zone = await freshZone(t);
  const log = recordingLogger(logged);
  const app = await zone.startApp({}, { log });
  // The burst is two lines, and one more each second: the summary tells how many there would be.
  const terse = await zone.startApp({ logLinesPerSource: 1 }, { log });
  const complaint = { type: 'error', code: 'c'.repeat(100), message: '\u0001'.repeat(4_000) };
  const lines = (msg: RegExp) => logged.filter((line) => msg.test(String(line.msg)));

  await t.test('a complaint has no place before the greeting', async (t) => {
    const agent = await new ScriptedAgent(app.url, newMachine()).open();
    for (let each = 0; each < 5; each += 1) agent.send(complaint);
    t.match(await agent.end(), { code: 1002, reason: /error frame has no place in state greeting/ });
    t.equal(lines(/the agent did not understand/).length, 0);
    t.same(
      lines(/protocol error/).map(({ state }) => state),
      ['greeting'],
    );
  });

  await t.test('a complaint in a session is cut', async (t) => {
    const { agent } = await joinAgent(app.url, newMachine());
    agent.send(complaint);
    await until(() => lines(/the agent did not understand/).length > 0, 'the line');
    t.ok(JSON.stringify(lines(/the agent did not understand/)[0]).length < 2_000);
    t.match(lines(/the agent did not understand/)[0], { message: /… \(4000 characters\)$/ });
    agent.close();
  });

  await t.test('all connections of one address share its lines', async (t) => {
    for (let round = 0; round < 5; round += 1) {
      const agents = await Promise.all(
        Array.from({ length: 20 }, () => new ScriptedAgent(terse.url, newMachine()).open()),
      );
      for (const agent of agents) agent.socket.send('x');
      await Promise.all(agents.map((agent) => agent.end()));
    }
    const written = lines(/protocol error/).length - 1;
    t.ok(written < 100, `${written} lines of 100`);
  });

  await t.test('sessions that begin and end use the same lines', async (t) => {
    const before = lines(/^session: /).length;
    for (let round = 0; round < 5; round += 1) {
      const joined = await Promise.all(Array.from({ length: 20 }, () => joinAgent(terse.url, newMachine())));
      for (const { agent } of joined) agent.close();
      await Promise.all(joined.map(({ agent }) => agent.end()));
    }
    const written = lines(/^session: /).length - before;
    t.ok(written < 200, `${written} lines of 200`);
  });

  await terse.stop();
  const summaries = lines(/logLinesPerSource/);
  t.ok(summaries.length > 0, 'the others are counted');
  for (const { sources } of summaries) t.same(Object.keys(sources as object), ['127.0.0.1'], 'also of closed sockets');
});
