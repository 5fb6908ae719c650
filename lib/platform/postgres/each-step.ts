/**
 * Carries out each step, one after the other. A step that fails stops no other (law 9), except with
 * the database down: then all others would fail as well, each after its whole time.
 * @throws the outage, or else the first error
 */
import { DatabaseUnavailableError } from '../errors.ts';

export async function runEachStep(steps: Iterable<() => Promise<unknown>>): Promise<void> {
  const errors: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) throw error;
      errors.push(error);
    }
  }
  if (errors.length > 0) throw errors[0];
}
