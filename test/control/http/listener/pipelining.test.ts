import { connect } from 'node:net';
import t from 'tap';
import { SERVER, startApi } from '../support.ts';

const request = (method: string, path: string, length = 0) =>
  `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n\r\n`;

t.test('a change whose body breaks off is carried out or refused, as its answer says', async (t) => {
  const { port, call, addServer } = await startApi(t);
  await addServer(SERVER);
  const path = `/servers/${SERVER}`;
  let text = '';
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('data', (chunk) => (text += chunk)).end(request('DELETE', path, 5));
  await new Promise((resolve) => socket.once('close', resolve).once('end', resolve));
  socket.destroy();
  const isThere = (await call('GET', path)).status === 200;
  t.match(text, isThere ? /^HTTP\/1.1 400 / : /^HTTP\/1.1 204 /);
});
