/** The tasks that change the settings of a server. */
import type { TaskDefinitions } from '../../runner/task-definition.ts';
import { serverFactoryReset } from './server-factory-reset.ts';
import { serverSetup } from './server-setup.ts';
import { serverUpdateNics } from './server-update-nics.ts';

export const settingsTasks = {
  server_setup: serverSetup,
  server_factory_reset: serverFactoryReset,
  server_update_nics: serverUpdateNics,
} satisfies TaskDefinitions;
