import { readFile } from 'node:fs/promises';
import t from 'tap';
import { parseInterfaces, readInterfaces } from '../../../lib/agent/vms/interface-counters.ts';

const HEADINGS = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
`;

t.test('counters are read by column; the loopback interface and lines that are none are left out', (t) => {
  const text = `${HEADINGS}    lo:    9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9
  eth0:1500 10 1 2 0 0 0 0 2600 20 3 4 0 0 0 0
nonsense: 1 2 x
`;
  t.same(parseInterfaces(text), {
    eth0: {
      rx_bytes: 1500,
      rx_packets: 10,
      rx_errors: 1,
      rx_dropped: 2,
      tx_bytes: 2600,
      tx_packets: 20,
      tx_errors: 3,
      tx_dropped: 4,
    },
  });
  t.same(parseInterfaces(''), {});
  t.end();
});

t.test('they are those of a process that is in the VM before and after', async (t) => {
  const own = Object.keys(parseInterfaces(await readFile('/proc/self/net/dev', 'utf8')));
  const read = Object.keys((await readInterfaces(async () => [process.pid])) ?? {});
  t.same(read, own);
  t.equal(await readInterfaces(async () => []), undefined);
  const answers = [[process.pid], [1]];
  t.equal(await readInterfaces(async () => answers.shift() ?? []), undefined, 'its number has another process');
});
