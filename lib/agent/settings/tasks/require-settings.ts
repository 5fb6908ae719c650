/** The settings of the server, for the tasks that an agent has only with them. */

import type { TaskContext } from '../../runner/task-definition.ts';
import { TaskFailure } from '../../task-failure.ts';
import type { SettingsKeeper } from '../settings-keeper.ts';

export function requireSettings({ settings }: Pick<TaskContext, 'settings'>): SettingsKeeper {
  if (settings !== undefined) return settings;
  throw new TaskFailure('UnknownTask', 'This agent keeps no settings of its server');
}
