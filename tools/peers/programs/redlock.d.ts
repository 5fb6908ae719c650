/** The package has no types; these are the parts used here. */
declare module 'redlock' {
  import type { Redis } from 'ioredis';

  interface Options {
    retryCount?: number;
    retryDelay?: number;
    retryJitter?: number;
  }

  export default class Redlock {
    constructor(clients: readonly Redis[], options?: Options);
    lock(resource: string, ttlMs: number): Promise<{ unlock(): Promise<void> }>;
    on(event: 'clientError', listener: (error: unknown) => void): this;
  }
}
