/**
 * A stand-in for Ur, the program of a server without an agent: it speaks Ur's protocol with a real
 * broker, and really runs the scripts that it is sent. As Ur, it acknowledges a script before it
 * runs it, and answers 0 for the exit status 113, after which the server reboots (`reboots`).
 * Differences: it says its sysinfo when the test wants it, and for `/usr/bin/sysinfo`, which this
 * machine lacks, it answers with the sysinfo that the test gives.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Channel, type ChannelModel, type ConsumeMessage, connect } from 'amqplib';
import type { Teardown } from './postgres.ts';

const EXCHANGE = 'amq.topic';

interface Order {
  type: string;
  script?: string;
  file?: string;
  args?: string[];
  env?: Record<string, string>;
}

export class TestUr {
  readonly uuid: string;
  /** What it says of its server. */
  sysinfo: Record<string, unknown>;
  /** Scripts and files that arrived. */
  readonly orders: Order[] = [];
  /** How often its server rebooted. */
  reboots = 0;
  /** What it does in place of running an order. */
  instead: ((key: string) => void) | undefined;
  readonly #connection: ChannelModel;
  readonly #channel: Channel;

  private constructor(uuid: string, connection: ChannelModel, channel: Channel) {
    this.uuid = uuid;
    this.sysinfo = { UUID: uuid, Hostname: `ur-${uuid.slice(0, 8)}`, 'Live Image': '20260101T000000Z', Setup: 'false' };
    this.#connection = connection;
    this.#channel = channel;
  }

  /** Connects, and listens to orders for this server. */
  static async start(t: Teardown, url: string, uuid: string): Promise<TestUr> {
    const connection = await connect(url);
    connection.on('error', () => undefined);
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    const ur = new TestUr(uuid, connection, channel);
    t.teardown(() => ur.stop());
    const { queue } = await channel.assertQueue(`ur.request.${uuid}.00:00:00:00:00:01`, { exclusive: true });
    await channel.bindQueue(queue, EXCHANGE, `ur.execute.${uuid}.*`);
    await channel.bindQueue(queue, EXCHANGE, 'ur.broadcast.*.*');
    await channel.consume(queue, (message) => void (message && ur.#receive(message)));
    return ur;
  }

  async stop(): Promise<void> {
    await this.#connection.close().catch(() => undefined);
  }

  /** Ur says its sysinfo once a minute until its server is set up. */
  say(): void {
    this.publish(`ur.sysinfo.${this.uuid}.${randomBytes(4).toString('hex')}`, this.sysinfo);
  }

  /** Ur says so once after its server has started. */
  startup(): void {
    this.publish(`ur.startup.${this.uuid}`, this.sysinfo);
  }

  publish(key: string, body: unknown): void {
    const content = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    this.#channel.publish(EXCHANGE, key, content, { contentType: 'application/json' });
  }

  reply(key: string, exitStatus: number, stdout: string, stderr = ''): void {
    const [, , , id] = key.split('.');
    this.publish(`ur.execute-reply.${this.uuid}.${id}`, { exit_status: exitStatus, stdout, stderr });
  }

  #receive(message: ConsumeMessage): void {
    this.#channel.ack(message);
    const { routingKey: key } = message.fields;
    if (key.split('.')[1] !== 'execute') return;
    const order = JSON.parse(message.content.toString()) as Order;
    this.orders.push(order);
    if (this.instead !== undefined) this.instead(key);
    else void this.#run(key, order);
  }

  async #run(key: string, { type, script = '', file, args = [], env }: Order): Promise<void> {
    if (type === 'file' && file === '/usr/bin/sysinfo') return this.reply(key, 0, JSON.stringify(this.sysinfo));
    if (type !== 'script') return this.reply(key, 127, '', `no ${file}`);
    const folder = await mkdtemp(path.join(tmpdir(), 'cnapi-ur-'));
    const program = path.join(folder, 'script');
    await writeFile(program, script);
    await chmod(program, 0o700);
    const { status, stdout, stderr } = await execute(program, args, env);
    await rm(folder, { recursive: true, force: true });
    this.reply(key, status === 113 ? 0 : status, stdout, stderr);
    if (status === 113) this.reboots += 1;
  }
}

function execute(program: string, args: readonly string[], env: Record<string, string> | undefined) {
  return new Promise<{ status: number; stdout: string; stderr: string }>((resolve) => {
    const child = spawn(program, [...args], { env: env ?? process.env, stdio: ['ignore', 'pipe', 'pipe'] });
    const read = { stdout: '', stderr: '' };
    child.stdout.on('data', (bytes) => (read.stdout += bytes));
    child.stderr.on('data', (bytes) => (read.stderr += bytes));
    child.on('error', (error) => resolve({ status: 127, ...read, stderr: error.message }));
    child.on('close', (status) => resolve({ status: status ?? 1, ...read }));
  });
}
