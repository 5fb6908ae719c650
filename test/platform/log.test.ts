import t from 'tap';
import type { Logger } from '../../lib/platform/log.ts';
import { recordingLogger } from '../support/recording-logger.ts';

t.test(
  'a field with a capital in it is refused by the compiler, in a line and in what a child brings along',
  async (t) => {
    const records: Record<string, unknown>[] = [];
    const log: Logger = recordingLogger(records);
    log.info({ server_uuid: 'A', task: 'T', req_id: 'R' }, 'as it should be');
    // @ts-expect-error Capitals: whoever looks for "server_uuid" would not find this line.
    log.info({ serverUuid: 'A' }, 'not found');
    // @ts-expect-error As above.
    log.child({ taskId: 'T' }).info('not found either');
    t.same(
      records.map(({ msg }) => msg),
      ['as it should be', 'not found', 'not found either'],
    );
  },
);
