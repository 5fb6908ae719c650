/**
 * The program in a real terminal (tmux): what it draws, what it escapes, and how it leaves the
 * terminal.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { json, scripted } from '../client/rig.ts';
import { startZone } from '../support/fleet-harness.ts';
import { until } from '../support/until.ts';
import { CNAPI } from './rig.ts';
import { lacksTmux, Terminal } from './tmux-terminal.ts';

const skip = lacksTmux();

t.test('watch does not show a fleet as live that no longer answers', { skip }, async (t) => {
  const id = '00000000-0000-4000-8000-000000000001';
  const times = { started: '2030-01-01T00:00:00Z', lease_age_ms: 1 };
  const live = { uuid: id, run: id, pid: 1, version: '1', agents: 7, state: 'live', admission: 'open', ...times };
  let isGone = false;
  const instance = await scripted(t, (response, { path }) => {
    if (isGone) response.destroy();
    else if (path.startsWith('/tasks?')) json(response, 200, { tasks: [] });
    else json(response, 200, path.startsWith('/instances') ? [{ ...live, url: instance.url }] : []);
  });
  const terminal = new Terminal(t, { CNAPI_URL: instance.url, HOME: t.testdir(), cnapi: CNAPI });
  terminal.type('$cnapi watch --interval 200ms');
  t.notMatch(await terminal.shows(/ live /), 'no answer');
  isGone = true;
  const first = await terminal.shows(/^no answer for \d+s; what follows is from \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$/m);
  t.match(first, /was live /);
  const secondsOf = (screen: string) => Number(/no (?:answer|update) for (\d+)s/.exec(screen)?.[1] ?? 0);
  await until(() => secondsOf(terminal.screen()) > secondsOf(first), 'the next second');
  isGone = false;
  t.notMatch(await terminal.shows(/ {2}live /), /no (answer|update)|was/);
  terminal.key('q');
});

t.test('the CLI in a terminal', { skip }, async (t) => {
  const zone = await startZone(t, { instances: 1, agents: 1, simulated: 1 });
  const [server] = zone.agents;
  const url = zone.instances[0]?.url ?? '';
  const terminal = new Terminal(t, { CNAPI_URL: url, HOME: zone.directory, cnapi: CNAPI });

  await t.test('watch draws a screen, follows changes and restores the terminal', async (t) => {
    terminal.type('echo before the watch; stty -a > ~/stty-before');
    // With the prompt: what is typed before it is shown in other places.
    await terminal.shows(/^before the watch\n\$\s*$/m);
    terminal.type('$cnapi watch --interval 300ms');
    const drawn = await terminal.shows(/servers {2}2, 2 running[\s\S]*INSTANCE/);
    t.match(drawn, /^cnapi watch {3}q to leave/);
    t.notMatch(drawn, 'before the watch', 'on a separate screen');
    await zone.fleet?.kill();
    const gone = await terminal.shows(/2, 1 running, 1 unknown/);
    t.match(gone, /NOT RUNNING[\s\S]*node-0 +unknown/);
    terminal.key('q');
    // Wait for the prompt: until then watch may read what is typed.
    t.match(await terminal.shows(/before the watch[\s\S]*300ms\n\$\s*$/), /\$cnapi watch --interval 300ms/);
    terminal.type('stty -a > ~/stty-after; cmp ~/stty-before ~/stty-after && echo the same');
    await terminal.shows(/^the same$/m);
  });

  await t.test('exec -it is a shell on the server, with the size of this terminal', async (t) => {
    terminal.type('clear; stty -a > ~/stty-before');
    await terminal.shows(/^\$\s*$/m);
    terminal.type(`$cnapi exec -it ${server?.serverUuid} -- sh`);
    await terminal.shows(/sh\n.*[#$]\s*$/);
    terminal.type('stty size; tty; echo "type $TERM"');
    t.match(await terminal.shows(/^30 100\n\/dev\/pts\/\d+\ntype screen/m), /30 100/);
    // A Ctrl-C before the program is in the foreground would be the shell's.
    terminal.type("sh -c 'echo begun; exec sleep 600'");
    await terminal.shows(/^begun$/m);
    terminal.key('C-c');
    terminal.type('echo "still $((40 + 2))"; exit 3');
    await terminal.shows(/still 42\n\$\s*$/m);
    terminal.type('echo "code $?"; stty -a > ~/stty-after; cmp ~/stty-before ~/stty-after && echo the same');
    await terminal.shows(/^code 3\nthe same$/m);
    terminal.type('clear');
  });

  await t.test('Ctrl-C in exec cancels the task, and output of a server cannot send escapes', async () => {
    terminal.type('clear');
    terminal.type(`$cnapi exec ${server?.serverUuid} -- 'printf "\\033[2Jevil\\033]0;title\\007\\n"; sleep 60'`);
    await terminal.shows('\\x1b[2Jevil\\x1b]0;title\\x07');
    terminal.key('C-c');
    await terminal.shows('cancelling 1 of 1; press Ctrl-C again');
    await terminal.shows(/Cancelled\)/);
    terminal.type('echo ended with $?');
    await terminal.shows('ended with 130');
  });

  await t.test('missing live output does not hold back what follows it', async () => {
    terminal.type('clear');
    const command = `exec --detach ${server?.serverUuid} -- 'seq 1 60000; sleep 1; echo still here; sleep 600'`;
    terminal.type(`task=$($cnapi ${command}); $cnapi task $task --follow`);
    await terminal.shows(/cnapi: \d+ bytes of stdout are missing here\n[\s\S]*still here/);
    terminal.key('C-c');
    terminal.type('clear; $cnapi cancel $task; echo ended with $?');
    await terminal.shows('ended with 0');
  });

  await t.test('tables fit the terminal: ids of instances may be shortened, uuids of servers are whole', async (t) => {
    terminal.type('clear; $cnapi instances; $cnapi servers');
    const shown = await terminal.shows(/UUID[\s\S]*node-0/);
    t.match(shown, zone.instances[0]?.uuid.slice(0, 8));
    t.match(shown, server?.serverUuid);
  });

  await t.test('the findings of doctor are coloured and show no escapes', async (t) => {
    terminal.type('clear; $cnapi doctor');
    const shown = await terminal.shows(/^fail {2}config .*no configuration to check/m);
    t.notMatch(shown, 'x1b');
  });

  await t.test('a command under a lock reads from the terminal, also after Ctrl-Z and fg', async () => {
    terminal.type('clear; $cnapi lock default a b -- sh -c \'echo ready; read line; echo "got $line"\'');
    await terminal.shows(/^ready$/m);
    terminal.key('C-z');
    await terminal.shows('Stopped');
    terminal.type('fg');
    terminal.type('something');
    await terminal.shows('got something');
  });

  await t.test('a command in the background leaves the terminal as the shell needs it', async (t) => {
    const [output, go] = ['output', 'go'].map((name) => path.join(zone.directory, name)) as [string, string];
    terminal.type('exec bash --norc --noprofile -i');
    terminal.type('clear; echo bash $BASH_VERSION');
    await terminal.shows(/^bash \d.*\n\$ *$/m);
    const command = `'echo begun; until [ -e ${go} ]; do sleep 0.1; done'`;
    terminal.type(`$cnapi exec ${server?.serverUuid} -- ${command} > ${output} &`);
    // By then Node has saved the modes of the terminal, in which bash edits its next line.
    await until(() => existsSync(output) && readFileSync(output, 'utf8') === 'begun\n', 'the start of the command');
    terminal.type('clear; echo waiting; wait; stty -a | grep -qwe -echo && echo no echo || echo with echo');
    await terminal.shows(/^waiting$/m);
    writeFileSync(go, '');
    t.match(await terminal.shows(/^(no|with) echo$/m), /^with echo$/m);
    terminal.type('stty sane');
  });

  await t.test('Ctrl-Z without a job-control shell stops neither the command nor the lock', async () => {
    terminal.type('clear; echo back again');
    await terminal.shows(/^back again$/m);
    terminal.runAlone(`${CNAPI} lock default a b -- sh -c 'echo ready; read line'`);
    await terminal.shows(/^ready$/m);
    terminal.key('C-z');
    terminal.type('something');
    await terminal.shows(/^back again$/m);
  });
});
