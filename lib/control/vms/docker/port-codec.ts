/** Translates between the bytes of a caller at a port and the messages of a stream. */

export interface RefusedInput {
  /** A sentence that says what is wrong with the input. */
  refused: string;
  /**
   * Messages after which the program ends by itself and removes what it has begun. Without them the
   * stream is cut off.
   */
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
   * False while the caller has received or sent only a part that looks complete. The connection
   * must then be reset instead of closed, so that the peer notices.
   */
  readonly isWhole: boolean;
}
