/** Checks the client's schemas of answers against the examples of the routes. */
import t from 'tap';
import type { z } from 'zod';
import * as answers from '../../lib/client/answers.ts';
import { contractList } from '../../lib/protocol/api/contracts.ts';

const taken: Record<string, [status: number, schema: z.ZodType]> = {
  ListServers: [200, answers.serverAnswer.array()],
  GetServer: [200, answers.serverAnswer],
  ListInstances: [200, answers.instanceAnswer.array()],
  DrainInstance: [202, answers.instanceAnswer],
  CreateTask: [202, answers.idAnswer],
  GetTask: [200, answers.taskAnswer],
  CreateTicket: [202, answers.createdTicketAnswer],
  ListTickets: [200, answers.ticketAnswer.array()],
  GetTicket: [200, answers.ticketAnswer],
  RenewTicket: [200, answers.ticketAnswer],
  ListQueues: [200, answers.queueAnswer.array()],
  CreateToken: [201, answers.createdTokenAnswer],
  ListTokens: [200, answers.tokenAnswer.array()],
  ListAudit: [200, answers.auditAnswer.array()],
  GetInfo: [200, answers.infoAnswer],
};

for (const [name, [status, schema]] of Object.entries(taken)) {
  t.test(`the client accepts the example of ${name}`, (t) => {
    const example = contractList.find((contract) => contract.name === name)?.responses[status]?.example;
    t.not(example, undefined, 'there is an example');
    t.strictSame(schema.safeParse(example).error, undefined);
    t.end();
  });
}
