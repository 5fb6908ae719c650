/** NIC tags, and whether a server is set up: the changes, and what sysinfo says of them. */
import t from 'tap';
import { changeNicTags, presentNicTags, withSettings } from '../../../lib/agent/settings/settings.ts';
import { MAX_NIC_TAGS, type NicAction } from '../../../lib/protocol/nics.ts';

const ETH0 = '02:00:00:00:00:01';
const ETH1 = '02:00:00:00:00:02';
const sysinfo = {
  Hostname: 'a',
  Setup: 'true',
  'Network Interfaces': {
    eth0: { 'MAC Address': '02:00:00:00:00:01'.toUpperCase(), 'NIC Names': ['admin'] },
    eth1: { 'MAC Address': ETH1 },
  },
};
const many = Array.from({ length: MAX_NIC_TAGS }, (_, index) => `tag_${index}`);

t.test('each action', async (t) => {
  const rows: [about: string, action: NicAction, named: string[], after: string[]][] = [
    ['update adds the tags to those of the machine', 'update', ['external'], ['admin', 'external']],
    ['update adds no tag twice', 'update', ['admin'], ['admin']],
    ['replace gives exactly these', 'replace', ['external'], ['external']],
    ['replace with none', 'replace', [], []],
    ['delete removes the tags', 'delete', ['admin'], []],
    ['delete of what it does not have changes nothing', 'delete', ['external'], ['admin']],
  ];
  const present = presentNicTags(sysinfo);
  for (const [about, action, nic_tags_provided, after] of rows) {
    const change = changeNicTags({ [ETH1]: ['kept'] }, { action, nics: [{ mac: ETH0, nic_tags_provided }], present });
    t.strictSame(change, { tags: { [ETH1]: ['kept'], [ETH0]: after } }, about);
  }
});

t.test('what is refused', async (t) => {
  const refused = (mac: string, nic_tags_provided: string[]) =>
    changeNicTags({}, { action: 'update', nics: [{ mac, nic_tags_provided }], present: presentNicTags(sysinfo) });
  t.strictSame(refused('02:00:00:00:00:09', []), { refusal: 'unknown', mac: '02:00:00:00:00:09' });
  t.strictSame(refused(ETH0, many), { refusal: 'full', mac: ETH0 }, 'with the one that it has');
  t.ok('tags' in refused(ETH1, many));
});

t.test('sysinfo shows the tags and the set-up', async (t) => {
  const shown = withSettings(sysinfo, { tags: { [ETH0]: [], [ETH1]: ['external'] }, isSetUp: false });
  t.strictSame(presentNicTags(shown), { [ETH0]: [], [ETH1]: ['external'] });
  t.match(shown, { Hostname: 'a', Setup: 'false' });
  t.notOk('Setup' in withSettings(sysinfo, { tags: {}, isSetUp: undefined }), 'unknown is not said');
  t.strictSame(withSettings({ Hostname: 'a' }, { tags: {}, isSetUp: true }).Setup, 'true');
});
