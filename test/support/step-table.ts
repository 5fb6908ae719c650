/** Compares a step function with a table that has every state and event. */
import type { Test } from 'tap';

/** For each event: in which states, with a space between two, it has which outcome. */
export type StepTable<Event extends string> = Readonly<Record<Event, Readonly<Record<string, string>>>>;

/** Fails also if the table lacks a state, or has it twice. */
export function checkStepTable<Event extends string, State extends string>(
  t: Test,
  table: StepTable<Event>,
  states: Readonly<Record<State, unknown>>,
  outcomeOf: (state: State, event: Event) => string,
): void {
  const names = Object.keys(states) as State[];
  for (const event of Object.keys(table) as Event[]) {
    const told = Object.entries(table[event]).flatMap(([outcome, list]) =>
      list.split(' ').map((name) => ({ name, outcome })),
    );
    t.same(told.map(({ name }) => name).sort(), [...names].sort(), `${event}: each state once`);
    for (const { name, outcome } of told) t.equal(outcomeOf(name as State, event), outcome, `${event} while ${name}`);
  }
}
