/** `cnapi vm exec -it` in a real terminal, with a real VM. */
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { allProcesses } from '../../../lib/agent/machine/proc.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { Cli, CNAPI } from '../rig.ts';
import { lacksTmux, Terminal } from '../tmux-terminal.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount() || lacksTmux();

t.test('a shell in a VM', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 1, agents: 0, simulated: 0 });
  const { serverUuid } = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const url = zone.instances[0]?.url ?? '';
  const internal_metadata = { 'docker:cmd': '["sleep","100000"]' };
  const fields = [`image_uuid=${IMAGE}`, 'alias=web', `internal_metadata=${JSON.stringify(internal_metadata)}`];
  const { code, stderr } = await new Cli(t, [url]).run('vm', 'create', serverUuid, ...fields);
  t.equal(code, 0, stderr);
  const terminal = new Terminal(t, { CNAPI_URL: url, HOME: zone.directory, cnapi: CNAPI });

  await t.test('has a terminal of the size of this one, with job control, and leaves it as it was', async (t) => {
    terminal.type('stty -a > ~/stty-before; clear');
    await terminal.shows(/^\$\s*$/m);
    terminal.type('$cnapi vm exec web -it -- sh');
    await terminal.shows(/BusyBox[\s\S]*#\s*$/);
    terminal.type('stty size; tty; echo "type $TERM"');
    t.match(await terminal.shows(/^30 100\n\/dev\/pts\/\d+\ntype screen/m), /30 100/);
    terminal.resize(90, 25);
    terminal.type('clear; until stty size | grep "25 90"; do sleep 0.1; done');
    await terminal.shows(/^25 90/m);
    // A Ctrl-C before the program is in the foreground would be the shell's.
    terminal.type("sh -c 'echo begun; exec sleep 4441'");
    await terminal.shows(/^begun$/m);
    terminal.key('C-c');
    terminal.type('echo "still $((40 + 2))"; exit 3');
    await terminal.shows(/still 42\n\$\s*$/m);
    terminal.type('echo "code $?"; stty -a > ~/stty-after; cmp ~/stty-before ~/stty-after && echo the same');
    await terminal.shows(/^code 3/m);
  });

  await t.test('is left by ~. also when it does not answer, and what ran in it ends', async () => {
    terminal.type('clear; $cnapi vm exec web -it -- sh');
    await terminal.shows(/BusyBox[\s\S]*#\s*$/);
    terminal.type('stty -isig; trap "" HUP INT TERM; echo ignoring; sleep 4442');
    await terminal.shows(/^ignoring$/m);
    // Without Enter: the shell outside would take that for an empty line and prompt twice.
    terminal.key('~');
    terminal.key('.');
    await terminal.shows(/^\$\s*$/m);
    terminal.type('echo "left with $?"');
    await terminal.shows(/^left with 130$/m);
    await until(async () => {
      const lines = await Promise.all(
        (await allProcesses()).map(({ pid }) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
      );
      return !lines.some((line) => line.includes('4442'));
    }, 'the program to end');
  });
});
