/**
 * Real RabbitMQ for tests: a private broker on free loopback ports, with a node name, a cookie, an
 * epmd and a folder of its own. It can be killed, restarted, frozen and thawed. A shell process,
 * the keeper, ends the broker when this process ends for any reason. Its disk can be too full for
 * it (`setAlarm`).
 *
 *     start ──▶ running ──kill()──▶ killed ──restart()──▶ running
 *     any ──this process ends──▶ gone
 *
 * A broker takes seconds to start, so the tests of one file share one (`sharedBroker`). If RabbitMQ
 * is not installed, tests are skipped: `t.test(name, { skip: noRabbitmq }, …)`. With
 * CNAPI_TEST_NO_SKIP=1 (continuous integration) they run and fail instead.
 */
import { type ChildProcessByStdio, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { connect } from 'amqplib';
import { freePort } from './fleet-harness.ts';
import type { Teardown } from './postgres.ts';

/** Debian's wrapper on the PATH changes the user and the folder; this is the program itself. */
const program = '/usr/lib/rabbitmq/bin/rabbitmq-server';
const control = '/usr/lib/rabbitmq/bin/rabbitmqctl';

export const noRabbitmq: string | false =
  !existsSync(program) && process.env.CNAPI_TEST_NO_SKIP !== '1' ? `no ${program}` : false;

/** All processes of the broker are in the keeper's process group. */
const KEEPER = '"$0" </dev/null >"$HOME/out" 2>&1 & cat >/dev/null; kill -KILL 0';
const STARTS_WITHIN_MS = 60_000;
/**
 * What a node keeps free of memory and disk does not matter here; one plugin less is a faster
 * start.
 */
const CONFIG = `loopback_users.guest = true
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.relative = 0.9
log.console = false
log.file.level = error
`;

/** Starts a broker that ends with the test. */
export async function startRabbitmq(t: Teardown): Promise<TestBroker> {
  const folder = await mkdtemp(path.join(tmpdir(), 'cnapi-rabbitmq-'));
  const [port, distPort, epmdPort] = [await freePort(), await freePort(), await freePort()];
  const broker = new TestBroker(folder, { port, distPort, epmdPort });
  t.teardown(async () => {
    await broker.kill();
    await rm(folder, { recursive: true, force: true });
  });
  await writeFile(path.join(folder, 'rabbitmq.conf'), CONFIG);
  await writeFile(path.join(folder, 'plugins'), '[].');
  await broker.restart();
  return broker;
}

interface Ports {
  port: number;
  distPort: number;
  epmdPort: number;
}

export class TestBroker {
  readonly url: string;
  readonly #folder: string;
  readonly #ports: Ports;
  readonly #node = `cnapi-${randomBytes(4).toString('hex')}@localhost`;
  #keeper: ChildProcessByStdio<Writable, null, null> | undefined;

  constructor(folder: string, ports: Ports) {
    this.#folder = folder;
    this.#ports = ports;
    this.url = `amqp://guest:guest@127.0.0.1:${ports.port}`;
  }

  /** Kills it like `kill -9`: connections are cut, and what was only in memory is lost. */
  async kill(): Promise<void> {
    const keeper = this.#keeper;
    this.#keeper = undefined;
    if (keeper === undefined || keeper.exitCode !== null || keeper.signalCode !== null) return;
    keeper.ref();
    const exited = new Promise((resolve) => keeper.once('exit', resolve));
    process.kill(-(keeper.pid as number), 'SIGCONT');
    keeper.stdin.end();
    await exited;
  }

  /** Starts it again on the same port, with what it had stored on disk. */
  async restart(): Promise<void> {
    await this.kill();
    await rm(this.#pidFile, { force: true });
    const env = this.#environment();
    const keeper = spawn('sh', ['-c', KEEPER, program], { detached: true, stdio: ['pipe', 'ignore', 'ignore'], env });
    keeper.stdin.on('error', () => undefined);
    this.#keeper = keeper;
    await this.#answers();
    keeper.unref();
    (keeper.stdin as Writable & { unref?(): void }).unref?.();
  }

  /**
   * With the alarm, it reads nothing more from connections that publish, until the alarm is over.
   */
  async setAlarm(isOn: boolean): Promise<void> {
    await promisify(execFile)(control, ['set_disk_free_limit', isOn ? '900000GB' : '1MB'], {
      env: this.#environment(),
    });
  }

  #environment(): Record<string, string | undefined> {
    const { port, distPort, epmdPort } = this.#ports;
    const file = (name: string) => path.join(this.#folder, name);
    return {
      PATH: process.env.PATH,
      HOME: this.#folder,
      LANG: 'C.UTF-8',
      ERL_EPMD_PORT: String(epmdPort),
      ERL_EPMD_ADDRESS: '127.0.0.1',
      RABBITMQ_NODENAME: this.#node,
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(distPort),
      RABBITMQ_MNESIA_BASE: file('mnesia'),
      RABBITMQ_LOG_BASE: file('log'),
      RABBITMQ_PID_FILE: this.#pidFile,
      RABBITMQ_CONFIG_FILE: file('rabbitmq.conf'),
      RABBITMQ_CONF_ENV_FILE: '/dev/null',
      RABBITMQ_ENABLED_PLUGINS_FILE: file('plugins'),
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS:
        '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}',
    };
  }

  /** Suspends the broker: connections stay open and nothing answers. */
  async freeze(): Promise<void> {
    process.kill(await this.#pid(), 'SIGSTOP');
  }

  async thaw(): Promise<void> {
    process.kill(await this.#pid(), 'SIGCONT');
  }

  get #pidFile(): string {
    return path.join(this.#folder, 'pid');
  }

  async #pid(): Promise<number> {
    return Number(await readFile(this.#pidFile, 'utf8'));
  }

  async #answers(): Promise<void> {
    const endsAt = performance.now() + STARTS_WITHIN_MS;
    while (performance.now() < endsAt) {
      const connection = await connect(this.url).catch(() => undefined);
      if (connection !== undefined) return connection.close();
      await sleep(100);
    }
    throw new Error(`${program} did not answer on ${this.url}; ${path.join(this.#folder, 'out')} says why`);
  }
}
