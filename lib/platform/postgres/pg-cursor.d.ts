/** pg-cursor ships no types; these are for the part that `pool.ts` uses. */
declare module 'pg-cursor' {
  import type { Connection, Submittable } from 'pg';

  export default class Cursor<Row> implements Submittable {
    constructor(text: string, values?: unknown[]);
    submit(connection: Connection): void;
    /** Up to `count` further rows; an empty array at the end. */
    read(count: number): Promise<Row[]>;
    close(): Promise<void>;
  }
}
