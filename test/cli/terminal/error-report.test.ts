/** What is said of a refusal: whose right is missing, and who can give it. */
import t from 'tap';
import { WithheldError } from '../../../lib/cli/terminal/command-errors.ts';
import { buildErrorReport, errorReportText } from '../../../lib/cli/terminal/error-report.ts';
import { ApiError } from '../../../lib/client/client-errors.ts';
import { RoleTooSmallError, TokenOfAnotherServerError } from '../../../lib/control/access/access-errors.ts';
import { NoAccessError } from '../../../lib/control/organizations/organization-errors.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const eyes = { name: 'eyes', roles: ['reader'] } as const;
const rows: Record<string, [{ statusCode: number; code: string; message: string }, RegExp]> = {
  'a role that is too small': [
    new RoleTooSmallError(eyes, 'operator'),
    /needs the role operator; "eyes" has reader\. An admin makes another token: cnapi token create NAME --role operator\. .*--config FILE, or --local for their npm start$/,
  ],
  'a role other than that of an agent': [
    new RoleTooSmallError(eyes, 'agent'),
    /needs the role agent; .*: cnapi token create NAME --role agent --server SERVER\. So/,
  ],
  'the right role on another server': [
    new TokenOfAnotherServerError({ name: 'web-1', roles: ['agent'], serverUuid: SERVER }),
    new RegExp(`good for server ${SERVER} only\\. .*: cnapi token create NAME --role agent --server SERVER$`),
  ],
  'not in the group': [new NoAccessError('alice', 'in group push_job_writers'), /Rule: in group push_job_writers$/],
  'a foreign host': [
    { statusCode: 403, code: 'Forbidden', message: 'Host x is not a name of this service' },
    /service$/,
  ],
};

t.test('what an instance refused is said in plain words, with the exit code of the rule', async (t) => {
  const of = (code: string, status: number, message: string, field: string, text: string) =>
    new ApiError(code, status, message, {
      address: 'http://a',
      requestId: 'r',
      errors: [{ field, code: 'Invalid', message: text }],
    });
  const invalid = () => of('InvalidParameters', 400, 'Request parameters failed validation', 'cron', 'value is wrong');
  const report = buildErrorReport(invalid());
  t.match(report, { code: 'InvalidParameters', exitCode: 2 });
  t.equal(errorReportText(report), 'cron: value is wrong (at http://a, request r)');
  const unsure = Object.assign(invalid(), { mayBeDone: true });
  t.equal(buildErrorReport(unsure).exitCode, 1, 'an earlier attempt may have changed something');
  const away = of('ServerNotRunning', 409, 'not running', 'server_uuid', `server ${SERVER} is unknown`);
  t.match(buildErrorReport(away), {
    message: `server ${SERVER} is unknown: its agent is not connected; this request started nothing`,
    exitCode: 1,
  });
});

for (const [name, [error, said]] of Object.entries(rows))
  t.test(`the advice of a refusal is that of the instance: ${name}`, async (t) => {
    const { statusCode, code, message } = error;
    const report = buildErrorReport(
      new ApiError(code, statusCode, message, { address: 'a', requestId: undefined } as never),
    );
    t.match(report, { message: said, exitCode: 1 });
    t.equal(report.hint, undefined);
  });

t.test('for contents that are withheld, the smallest role that may see them is named', async (t) => {
  t.match(buildErrorReport(new WithheldError('The command')), {
    message: /^The command are shown only to tokens with the right task-contents/,
    hint: /--role operator\./,
    exitCode: 1,
  });
});
