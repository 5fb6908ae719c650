import t from 'tap';
import { bootPlatforms, latestPlatform } from '../../../../lib/protocol/api/documents/platforms.ts';

t.test('a name of the form of a time is a time', async (t) => {
  const rows: [string, boolean][] = [
    ['20210101T000000Z', true],
    ['20240229T235959Z', true],
    ['linux-6.12', true],
    ['2021', true],
    ['20210101T000000Z-debug', true],
    ['99999999T999999Z', false],
    ['20230229T000000Z', false],
    ['20210101T240000Z', false],
    ['20210101T000060Z', false],
    ['20211301T000000Z', false],
  ];
  const { name } = bootPlatforms.fields;
  for (const [value, isName] of rows) t.equal(name.safeParse(value).success, isName, value);
});

t.test('the latest platform is the one with the greatest time', async (t) => {
  const names = ['20210101T000000Z', 'zfs', '20220301T000000Z', '99999999T999999Z', '20200101T000000Z'];
  t.equal(latestPlatform(names), '20220301T000000Z');
  t.equal(latestPlatform(['zfs', '99999999T999999Z']), undefined);
});
