/** A database whose answers a test holds back. */
import type { Queryable } from '../../lib/platform/postgres/database.ts';

export function holdAnswers(database: Queryable) {
  const holds: { text: string; reached: () => void; until: Promise<void> }[] = [];
  /** Holds the answer to the next statement with this text. */
  const hold = (text: string) => {
    const { promise: reached, resolve } = Promise.withResolvers<void>();
    const { promise: until, resolve: release } = Promise.withResolvers<void>();
    holds.push({ text, reached: resolve, until });
    return { reached, release };
  };
  const through: Queryable = {
    async query(text, values, options) {
      const answer = await database.query(text, values, options);
      const index = holds.findIndex((one) => text.includes(one.text));
      const [held] = index < 0 ? [] : holds.splice(index, 1);
      held?.reached();
      await held?.until;
      return answer as never;
    },
  };
  return { database: through, hold };
}
