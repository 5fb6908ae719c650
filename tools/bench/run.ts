/**
 * One run: starts the services, measures one figure after the other, and ends everything it
 * started, whether it finished, failed or was stopped. A figure that fails is a line of the report;
 * the others are still measured.
 */
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { messageOf } from '../../lib/platform/errors.ts';
import { systemClock as clock, isoNow } from '../../lib/platform/time/clock.ts';
import { guardFolder } from '../processes/guardian.ts';
import { Program, type ProgramPlan } from '../processes/program.ts';
import type { BenchContext, Figure } from './figure.ts';
import { type Floors, measureFloors } from './floors.ts';
import { Foundation } from './foundation.ts';
import { Helper, type HelperPlan } from './helper.ts';
import { describeMachine, loadAverage } from './machine.ts';
import type { BenchOptions } from './options.ts';
import type { FigureReport, Report } from './report.ts';
import { Zone, type ZonePlan } from './zone.ts';

interface Stoppable {
  stop(): Promise<void>;
}

export class Run {
  readonly #options: BenchOptions;
  readonly #signal: AbortSignal;
  readonly #say: (text: string) => void;
  readonly #directory = mkdtempSync(path.join(os.tmpdir(), 'cnapi-bench-'));
  readonly #foundation: Foundation;
  #started: Stoppable[] = [];
  #folders = 0;

  constructor(options: BenchOptions, signal: AbortSignal, say: (text: string) => void) {
    const { databaseUrl, redisUrl, bus } = options;
    this.#options = options;
    this.#signal = signal;
    this.#say = say;
    guardFolder(this.#directory);
    // The user that Postgres runs as must be able to pass through.
    chmodSync(this.#directory, 0o711);
    this.#foundation = new Foundation({ directory: this.#directory, databaseUrl, redisUrl, bus, say });
  }

  /** @throws when it cannot start, or is stopped */
  async measure(): Promise<Report> {
    const startedAt = isoNow(clock);
    await this.#foundation.start();
    const [{ version } = { version: '?' }] = await this.#foundation.sql<{ version: string }>(
      `select current_setting('server_version') as version`,
    );
    const machine = describeMachine({ postgres: version, bus: this.#foundation.bus });
    this.#say('measuring the floors');
    const floors = await this.#orAborted(measureFloors(this.#context()));
    const figures: FigureReport[] = [];
    for (const figure of this.#options.figures) {
      figures.push(await this.#measure(figure, floors));
    }
    const { isQuick, isPeers } = this.#options;
    return { machine, startedAt, isQuick, isPeers, floors, figures };
  }

  async stop(): Promise<void> {
    await this.#stopStarted();
    await this.#foundation.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #measure(figure: Figure, ofRun: Floors): Promise<FigureReport> {
    const { name, isOnFloors } = figure;
    const [loadBefore, startedAt] = [loadAverage(), clock.now()];
    this.#say(`measuring ${name} (about ${figure.seconds} s at full size)`);
    const report = (rest: Pick<FigureReport, 'results' | 'error'>) => {
      return { name, loadBefore, seconds: (clock.now() - startedAt) / 1000, ...rest };
    };
    try {
      const floors = isOnFloors ? await this.#orAborted(measureFloors(this.#context())) : ofRun;
      const context: BenchContext = { ...this.#context(), floors };
      return report({ results: await this.#orAborted(figure.measure(context)) });
    } catch (error) {
      if (this.#signal.aborted) throw error;
      return report({ results: [], error: (error as Error).stack ?? messageOf(error) });
    } finally {
      await this.#stopStarted();
    }
  }

  #context(): Omit<BenchContext, 'floors'> {
    return {
      isQuick: this.#options.isQuick,
      minutes: this.#options.minutes,
      nodes: this.#options.nodes,
      snapshotMinutes: this.#options.snapshotMinutes,
      rounds: this.#options.isQuick ? 1 : this.#options.rounds,
      foundation: this.#foundation,
      directory: this.#newFolder(),
      profiles: this.#options.profiles,
      signal: this.#signal,
      say: this.#say,
      startZone: (plan = {}) => this.#startZone(plan),
      startHelper: (plan) => this.#startHelper(plan),
      startProgram: (plan) => this.#startProgram(plan),
    };
  }

  async #startZone(plan: ZonePlan): Promise<Zone> {
    const zone = new Zone({ foundation: this.#foundation, plan, signal: this.#signal, folder: this.#newFolder() });
    this.#take(zone);
    await zone.start();
    return zone;
  }

  async #startHelper(plan: HelperPlan): Promise<Helper> {
    const helper = new Helper(plan, path.join(this.#newFolder(), `${plan.name}.log`));
    this.#take(helper);
    await helper.start();
    return helper;
  }

  #startProgram(plan: Pick<ProgramPlan, 'name' | 'command'>): Program {
    const program = new Program({ ...plan, logFile: path.join(this.#newFolder(), `${plan.name}.log`) });
    this.#take({ stop: () => program.kill() });
    program.start();
    return program;
  }

  /** Prevents a figure from starting anything after the run was stopped. */
  #take(one: Stoppable): void {
    this.#signal.throwIfAborted();
    this.#started.push(one);
  }

  async #stopStarted(): Promise<void> {
    const started = this.#started.reverse();
    this.#started = [];
    for (const one of started) {
      await one.stop().catch((error: unknown) => this.#say(`could not be stopped in good order: ${messageOf(error)}`));
    }
  }

  #orAborted<Result>(work: Promise<Result>): Promise<Result> {
    const { promise, reject } = Promise.withResolvers<never>();
    const stop = () => reject(this.#signal.reason);
    this.#signal.addEventListener('abort', stop, { once: true });
    if (this.#signal.aborted) stop();
    // A failure after the abort is ignored.
    work.catch(() => undefined);
    return Promise.race([work, promise]).finally(() => this.#signal.removeEventListener('abort', stop));
  }

  #newFolder(): string {
    const folder = path.join(this.#directory, `work-${this.#folders++}`);
    mkdirSync(folder, { mode: 0o700 });
    return folder;
  }
}
