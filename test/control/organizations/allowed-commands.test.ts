import t from 'tap';
import { isAllowedCommand } from '../../../lib/control/organizations/allowed-commands.ts';

t.test('a command is allowed whole, by its beginning, or because there is no list', async (t) => {
  const allowed_commands = ['chef-client', 'systemctl restart *'];
  const rows = {
    'chef-client': true,
    'chef-client -o x': false,
    'systemctl restart web': true,
    'systemctl stop': false,
  };
  for (const [command, is] of Object.entries(rows))
    t.equal(isAllowedCommand({ allowed_commands }, command), is, command);
  t.equal(isAllowedCommand({}, 'anything'), true);
  t.equal(isAllowedCommand({ allowed_commands: [] }, 'anything'), false);
});
