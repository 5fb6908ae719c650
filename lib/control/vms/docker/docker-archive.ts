/**
 * What callers of `docker-copy` read or write: an archive of tar, without a frame. The program in
 * the VM says first what it has found, up to a NUL; that is for the answer to the request. Clients
 * have no other sign of a failure than a connection that breaks.
 */
import {
  CHANNELS,
  channelIn,
  jsonIn,
  type StreamStatus,
  streamMessages,
  streamStatus,
} from '../../../protocol/streams/stream.ts';
import { ArchiveCheck } from './archive-check.ts';
import { END_OF_INPUT } from './docker-lines.ts';
import type { PortCodec, RefusedInput } from './port-codec.ts';

/** Why a stream ended before its program said what it had found. */
export class NoHeadError extends Error {
  readonly code: string;

  constructor({ code, message }: NonNullable<StreamStatus['error']>) {
    super(message);
    this.code = code;
  }
}

const MAX_HEAD_BYTES = 64 * 1024;
const NUL = 0;
const NOTHING = Buffer.alloc(0);

export class DockerArchive implements PortCodec {
  readonly #head = Promise.withResolvers<string>();
  readonly #end = Promise.withResolvers<void>();
  readonly #archiveCheck = new ArchiveCheck();
  /** The received part of an incomplete head; undefined once the head is complete. */
  #begun: Buffer | undefined = NOTHING;
  #isWhole = false;
  #isRefused = false;

  constructor() {
    // The request may have been answered before it is rejected.
    this.#head.promise.catch(() => undefined);
  }

  /** The head that the program sends before its data. @throws NoHeadError */
  get head(): Promise<string> {
    return this.#head.promise;
  }

  /** Resolves when the program or its stream has ended. */
  get ended(): Promise<void> {
    return this.#end.promise;
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  read(bytes: Buffer): Buffer[] | RefusedInput {
    const refused = this.#archiveCheck.check(bytes);
    return refused === undefined ? [...streamMessages(CHANNELS.stdin, bytes)] : this.#refuse(refused);
  }

  end(): Buffer[] | RefusedInput {
    const refused = this.#archiveCheck.end();
    return refused === undefined ? [END_OF_INPUT] : this.#refuse(refused);
  }

  write(message: Buffer): Buffer {
    switch (channelIn(message)) {
      case CHANNELS.stdout:
        return this.#begun === undefined ? message.subarray(1) : this.#afterHead(this.#begun, message.subarray(1));
      case CHANNELS.status:
        this.#ended(jsonIn(streamStatus, message) ?? {});
        return NOTHING;
      default:
        return NOTHING;
    }
  }

  #refuse(refused: string): RefusedInput {
    this.#isRefused = true;
    return { refused, lastMessages: [...streamMessages(CHANNELS.stdin, this.#archiveCheck.corruptTail), END_OF_INPUT] };
  }

  #afterHead(begun: Buffer, bytes: Buffer): Buffer {
    const head = Buffer.concat([begun, bytes]);
    const end = head.indexOf(NUL);
    if (end < 0 && head.length <= MAX_HEAD_BYTES) {
      this.#begun = head;
      return NOTHING;
    }
    this.#begun = undefined;
    this.#head.resolve(head.toString('utf8', 0, Math.max(end, 0)));
    return end < 0 ? NOTHING : head.subarray(end + 1);
  }

  #ended({ error, exit_code }: StreamStatus): void {
    this.#isWhole = error === undefined && exit_code === 0 && !this.#isRefused;
    const message = `The program that copies ended with ${exit_code ?? 'a signal'} before it had begun`;
    this.#head.reject(new NoHeadError(error ?? { code: 'CopyFailed', message }));
    this.#end.resolve();
  }
}
