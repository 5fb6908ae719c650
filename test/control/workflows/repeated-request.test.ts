/** Which job a request for a VM gets, if one has created the VM before. */
import t from 'tap';
import { answerForVm } from '../../../lib/control/workflows/repeated-request.ts';

type Last = NonNullable<Parameters<typeof answerForVm>[0]>;

const job = (execution: Last['execution'], hash = 'equal', cancel_requested_at: Date | null = null): Last => ({
  ...{ execution, request_hash: hash, cancel_requested_at },
});

const rows: [about: string, last: Last | undefined, vmExists: boolean, answer: ReturnType<typeof answerForVm>][] = [
  ['the first request', undefined, false, 'new'],
  ['a VM that no job has created', undefined, true, 'exists'],
  ['a repeat before the first step', job('queued'), false, 'same'],
  ['a repeat while the VM is created', job('running'), true, 'same'],
  ['another request meanwhile', job('running', 'other'), true, 'busy'],
  ['a repeat after the cancel', job('running', 'equal', new Date(0)), true, 'busy'],
  ['a repeat after the success', job('succeeded'), true, 'same'],
  ['another request after the success', job('succeeded', 'other'), true, 'exists'],
  ['a repeat after the VM was deleted', job('succeeded'), false, 'new'],
  ['a repeat after a failure', job('failed'), false, 'new'],
  ['a repeat after a failure that left the VM', job('failed'), true, 'exists'],
  ['a repeat after a cancel', job('canceled'), false, 'new'],
];

t.test('each row of the table', async (t) => {
  for (const [about, last, vmExists, answer] of rows)
    t.equal(answerForVm(last, { requestHash: 'equal', vmExists }), answer, about);
});
