/** What tasks contribute to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { serverTaskRoutes } from './routes/server-task-routes.ts';
import { taskRoutes } from './routes/task-routes.ts';
import { hintedServers } from './task-topics.ts';
import type { TaskStats, Tasks } from './tasks.ts';

const KEEP_DAYS = 30;
const SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400];

type TaskParts = Parameters<typeof serverTaskRoutes>[0] & { tasks: Tasks };

export const tasksSubsystem: SubsystemDefinition<TaskParts> = {
  // Their functions lock the roster row first, then tasks by id (or `skip locked`), and read the
  // time once, after the locks (law 5). Only the stores call them.
  migrations: readMigrations('tasks', import.meta.dirname),
  open(parts): Subsystem {
    const { tasks } = parts;
    const stat = (key: keyof TaskStats) => () => tasks.stats()[key];
    return {
      name: 'tasks',
      routes: [...serverTaskRoutes(parts), ...taskRoutes(parts)],
      start: () => tasks.start(),
      runs: {
        onMessage: (message) => tasks.hintSessions(hintedServers(message)),
        onSubscriptionConfirmed: () => tasks.trigger(),
        // The new run must take over the posts of the old run before others count them as lost.
        onRunRenewed: () => tasks.trigger(),
      },
      agents: {
        onSessionBegan: (session, inventory) => tasks.onInventory(session, inventory),
        frames: {
          task_event: (session, frame) => tasks.onTaskEvent(session, frame),
          task_end: (session, frame) => tasks.onTaskEnd(session, frame),
        },
      },
      unfinished: stat('postsInFlight'),
      beginDrain: () => tasks.stopPosting(),
      beginStop: () => tasks.stopPosting(),
      stop: () => tasks.stop(),
      metrics: [
        gauge('tasks_waits', 'Callers waiting for a task on this instance', stat('waits')),
        gauge('tasks_followers', 'Callers following the events of a task on this instance', stat('follows')),
        gauge(
          'tasks_posts_in_flight',
          'Tasks that this instance posted to legacy agents and whose ends it waits for',
          stat('postsInFlight'),
        ),
        counter('tasks_sent_total', 'Tasks sent to agents', stat('sent')),
        counter('tasks_resent_total', 'Tasks sent again because the agent had not confirmed them', stat('resent')),
        counter(
          'tasks_swept_total',
          'Tasks that the instance ended: never accepted by an agent, or long past their timeout',
          stat('swept'),
        ),
        counter('tasks_posted_total', 'Tasks posted to legacy agents', stat('posted')),
        counter(
          'tasks_posts_lost_total',
          'Posted tasks whose instance died before their end was recorded',
          stat('postsLost'),
        ),
        counter(
          'tasks_ends_refused_total',
          'Ends of tasks not taken because 64 MiB of ends waited for the database; agents repeat them',
          stat('refusedEnds'),
        ),
        counter(
          'tasks_creates_refused_total',
          'Tasks refused because the queue of their server was full',
          stat('refusedCreates'),
        ),
        counter(
          'tasks_events_dropped_total',
          'Pieces of progress and output dropped because they arrived faster than they could be written',
          stat('droppedEvents'),
        ),
        {
          kind: 'histograms',
          histograms: {
            tasks_wait_seconds: {
              help: 'Time from the creation of a task to its start, for tasks whose ends this instance recorded',
              buckets: SECONDS,
            },
            tasks_run_seconds: {
              help: 'Time from the start of a task to its end, for tasks whose ends this instance recorded',
              buckets: SECONDS,
            },
          },
          async take() {
            const times = await tasks.recentTimes();
            return {
              tasks_wait_seconds: times.flatMap(({ wait }) => wait ?? []),
              tasks_run_seconds: times.flatMap(({ run }) => run ?? []),
            };
          },
        },
      ],
      chores: [{ name: 'old tasks', batch: () => tasks.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
