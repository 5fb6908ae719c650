import t from 'tap';
import { parseAmqpUrl } from '../../../lib/platform/amqp/amqp-url.ts';

t.test('a URL gets the heartbeat of this program', async (t) => {
  t.equal(parseAmqpUrl('amqp://guest:secret@rabbitmq'), 'amqp://guest:secret@rabbitmq?heartbeat=10');
  t.equal(parseAmqpUrl('amqps://rabbitmq:5671/zone'), 'amqps://rabbitmq:5671/zone?heartbeat=10');
});

const wrong = [
  'redis://r',
  'amqp://',
  'rabbitmq:5672',
  'amqp://u:secret@h?heartbeat=0',
  'amqp://u:secret@h#x',
  'amqp://u:secret@h:x',
];
for (const url of wrong)
  t.test(`${url} is refused, without its password`, async (t) => {
    try {
      parseAmqpUrl(url);
      t.fail('it was accepted');
    } catch (error) {
      t.type(error, TypeError);
      t.notMatch((error as Error).message, 'secret');
    }
  });
