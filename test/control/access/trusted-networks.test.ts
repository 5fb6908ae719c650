import t from 'tap';
import { TrustedNetworks } from '../../../lib/control/access/trusted-networks.ts';

t.test('an address has the roles of all trusted networks that contain it', async (t) => {
  const networks = new TrustedNetworks([
    { text: '10.0.0.0/8', roles: ['reader'] },
    { text: '10.1.0.0/16', roles: ['agent', 'reader'] },
    { text: 'fd00::/64', roles: ['operator'] },
  ]);
  t.same(networks.actorAt('10.2.0.1'), { name: 'network 10.0.0.0/8', roles: ['reader'] });
  t.same(networks.actorAt('10.1.0.1'), { name: 'network 10.0.0.0/8 and 10.1.0.0/16', roles: ['reader', 'agent'] });
  t.same(networks.actorAt('fd00::5')?.roles, ['operator']);
  for (const unknownAddress of ['11.0.0.1', 'fd01::5', '', 'localhost'])
    t.equal(networks.actorAt(unknownAddress), undefined, unknownAddress);
});
