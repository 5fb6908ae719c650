/** What the caller of a port speaks: how its bytes become messages of a stream, and messages its bytes. */

export interface RefusedInput {
  /** A sentence that says what the caller has done wrong. */
  refused: string;
  /** With which the program ends by itself, and removes what it has begun; without them its stream is cut. */
  lastMessages?: readonly Buffer[];
}

export interface PortCodec {
  /** The messages to the agent in the next bytes of the caller. */
  read(bytes: Buffer): readonly Buffer[] | RefusedInput;
  /** The messages when the caller has ended its side. */
  end(): readonly Buffer[] | RefusedInput;
  /** The bytes for a message to the caller; empty if there is nothing to tell. */
  write(message: Buffer): Buffer | string;
  /**
   * False: what the caller has received, or sent, is a part only and does not look like one, so the
   * connection must break and not end.
   */
  readonly isWhole: boolean;
}
