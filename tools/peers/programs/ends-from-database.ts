/**
 * Notifies a caller of an end that a queue in Postgres has recorded, for queues without
 * notifications: a trigger on the queue's table, and LISTEN. The message comes with the commit of
 * the end, not earlier.
 */
import pg from 'pg';

const CHANNEL = 'bench_done';

export class DatabaseEnds {
  readonly #waiting = new Map<string, () => void>();
  readonly #client: pg.Client;

  constructor(databaseUrl: string) {
    this.#client = new pg.Client({ connectionString: databaseUrl });
  }

  /** `on` is the trigger's event and table, `id` the expression for the job's id. */
  async start({ on, when = 'true', id }: { on: string; when?: string; id: string }): Promise<void> {
    await this.#client.connect();
    await this.#client.query(`
      create function bench_notify() returns trigger language plpgsql as
        $$ begin perform pg_notify('${CHANNEL}', ${id}); return null; end $$;
      create trigger bench_notify after ${on} for each row when (${when}) execute function bench_notify()`);
    this.#client.on('notification', ({ payload = '' }) => {
      this.#waiting.get(payload)?.();
      this.#waiting.delete(payload);
    });
    await this.#client.query(`listen ${CHANNEL}`);
  }

  /** Call it before the job is added. */
  when(id: string): Promise<void> {
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }
}
