/** Answers the routes about the answering process (lib/protocol/api/process.ts). */
import { processContracts } from '../../../protocol/api/process.ts';
import { bind, content, empty, ok, type Route } from '../route.ts';

export interface ProcessRouteDeps {
  version: string;
  /** ISO 8601, constant for the life of the process. */
  startedAt: string;
  /** Whether this instance should receive requests, and if not, why. */
  isReady(): { ready: boolean; reasons: string[] };
  /** The health of this instance's dependencies, as it sees them now. */
  health(): { database: boolean; amqp: boolean };
  /** The figures that /diagnostics shows. */
  stats(): { tasks: Counts; waitlist: Counts };
  /** The level of every logger of this process, as bunyan's number. */
  logLevel: { get(): number; set(level: number): void };
  /** The metrics in the text format of Prometheus. */
  metrics(): Promise<{ contentType: string; content: string }>;
  /** The OpenAPI document of all routes, as JSON. */
  openApi(): Buffer;
}

type Counts = Record<string, number>;

export function processRoutes({ isReady, health, logLevel, metrics, openApi, ...about }: ProcessRouteDeps): Route[] {
  return bind(
    processContracts,
    {
      Ping() {
        const { database, amqp } = health();
        const word = (isUp: boolean) => (isUp ? 'online' : 'offline');
        return ok({
          ready: isReady().ready,
          services: { workflow: word(true), moray: word(database), amqp: word(amqp) },
        });
      },
      Ready() {
        const { ready, reasons } = isReady();
        return ready
          ? ok({ ready })
          : { status: 503 as const, body: { ready, reasons }, headers: { 'Retry-After': '1' } };
      },
      GetInfo: () => ok({ version: about.version }),
      GetDiagnostics: () =>
        ok({
          start_timestamp: about.startedAt,
          memory: { ...process.memoryUsage() },
          taskCallbacks: {},
          // A ticket becomes active together with the change that allows it, so none is ever
          // pending.
          pendingActivationsByServer: {},
          ...about.stats(),
        }),
      GetLogLevel: () => ok({ level: logLevel.get() }),
      SetLogLevel({ params }) {
        logLevel.set(params.level);
        return empty(200);
      },
      GetMetrics: async () => content(await metrics()),
      GetOpenApi: () => content({ contentType: 'application/json', content: openApi() }),
    },
    {
      Ping: { quiet: true },
      Ready: { quiet: true },
      GetInfo: { withoutDatabase: true },
      GetLogLevel: { withoutDatabase: true },
      GetMetrics: { quiet: true, withoutDatabase: true },
    },
  );
}
