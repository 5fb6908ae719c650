/** Unusual answers of Triton's CNAPI about servers, which clients may depend on. */
import t from 'tap';
import { parseConfig } from '../../../../lib/control/config.ts';
import { SERVER, startApi, UNKNOWN_UUID } from '../../http/support.ts';

t.test("as Triton's CNAPI: empty texts clear a field, ratios may be any number, each error is listed", async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const update = (body: unknown) => call('POST', `/servers/${SERVER}`, body);
  const server = async () => (await call('GET', `/servers/${SERVER}`)).body;

  t.equal((await update({ next_reboot: '', transitional_status: '' })).status, 204, 'nothing was set before');
  t.equal((await update({ next_reboot: '2030-01-01T00:00:00.000Z', transitional_status: 'rebooting' })).status, 204);
  t.equal((await update({ next_reboot: '', transitional_status: '' })).status, 204);
  const cleared = await server();
  t.notOk('next_reboot' in cleared || 'transitional_status' in cleared);

  for (const ratio of [1.5, -0.25, 0, '0.5']) {
    t.equal((await update({ reservation_ratio: ratio })).status, 204, String(ratio));
    t.equal((await server()).reservation_ratio, Number(ratio));
  }
  t.same((await update({ comments: [' x'] })).body.errors, [
    { field: 'comments', code: 'Invalid', message: 'value was not a string' },
    { field: 'comments', code: 'Invalid', message: 'value contains leading or trailing whitespace' },
  ]);
});

t.test("as Triton's CNAPI: overprovision ratios appear only where its allocator would look", async (t) => {
  const ratios = { cpu: 2, ram: 1, disk: 1.5 };
  const config = parseConfig({ databaseUrl: 'postgres://localhost/none', placementRatios: ratios });
  const { call, addServer } = await startApi(t, { parts: { config } });
  await addServer(SERVER);
  t.same((await call('GET', `/servers/${SERVER}`)).body.overprovision_ratios, ratios);
  for (const extras of ['capacity', 'all'])
    t.same((await call('GET', `/servers?extras=${extras}`)).body[0].overprovision_ratios, ratios, extras);
  for (const query of ['', '?extras=memory,disk,vms'])
    t.notOk('overprovision_ratios' in (await call('GET', `/servers${query}`)).body[0], query);
});

t.test("as Triton's CNAPI: a status keeps the figures it omits, and its VMs replace all others", async (t) => {
  const { call, addServer } = await startApi(t);
  await addServer(SERVER);
  const post = (body: object) => call('POST', `/servers/${SERVER}/events/status`, body);
  const vm = { uuid: UNKNOWN_UUID, state: 'running' };
  await post({
    vms: { [UNKNOWN_UUID]: vm },
    meminfo: { total_bytes: 5, arcsize_bytes: 6 },
    diskinfo: { pool_size_bytes: 8 },
  });
  await post({ vms: { [UNKNOWN_UUID]: vm }, meminfo: { arcsize_bytes: 7 } });
  t.match((await call('GET', `/servers/${SERVER}`)).body, {
    vms: { [UNKNOWN_UUID]: vm },
    memory_total_bytes: 5,
    memory_arc_bytes: 7,
    disk_pool_size_bytes: 8,
  });
  await post({ diskinfo: { pool_alloc_bytes: 3 } });
  const { body } = await call('GET', `/servers/${SERVER}`);
  t.match(body, { memory_total_bytes: 5, disk_pool_size_bytes: 8, disk_pool_alloc_bytes: 3 });
  t.same(body.vms, {});
});
