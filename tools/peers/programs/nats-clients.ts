/**
 * Hand-written NATS clients, for the same reason as those of MQTT. They connect, answer the
 * server's PING each second, and do nothing else. The observer is NATS's own client, in the account
 * that is notified of disconnections.
 */
import net from 'node:net';
import { connect as connectNats } from '@nats-io/transport-node';
import { type Events, serveClients } from './clients.ts';

interface Disconnected {
  client: { name?: string };
}

serveClients({
  connect,
  async observe(url, onGone) {
    const { host, username, password } = new URL(url);
    const connection = await connectNats({ servers: host, user: username, pass: password });
    connection.subscribe('$SYS.ACCOUNT.*.DISCONNECT', {
      callback: (_error, message) => onGone(message.json<Disconnected>().client.name ?? ''),
    });
    await connection.flush();
  },
});

function connect(url: string, id: string, events: Events): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = net.connect({ host: hostname, port: Number(port), noDelay: true });
  const options = { verbose: false, pedantic: false, name: id, lang: 'bench', version: '1', protocol: 0 };
  let rest = '';
  return new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.once('close', () => {
      events.lost();
      reject(new Error('closed before it was present'));
    });
    socket.on('data', (chunk) => {
      const lines = (rest + chunk.toString()).split('\r\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line.startsWith('INFO ')) socket.write(`CONNECT ${JSON.stringify(options)}\r\nPING\r\n`);
        else if (line === 'PONG') resolve();
        else if (line === 'PING') {
          socket.write('PONG\r\n');
          events.beat();
        } else if (line.startsWith('-ERR')) reject(new Error(line));
      }
    });
  });
}
