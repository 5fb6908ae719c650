/**
 * The documents of one noun: creates, reads, lists, changes and deletes them in its bucket. Each
 * write is one statement, which also writes the record of the audit and, by the bucket's trigger,
 * the event. A change reads the document, decides, and writes if nobody wrote meanwhile. Called by
 * `document-routes.ts`.
 */
import { CnapiError, InvalidParametersError } from '../../platform/errors.ts';
import type { BucketObject, DocumentBucket } from '../../platform/moray/bucket.ts';
import type { BucketPage, BucketStore } from '../../platform/moray/bucket-store.ts';
import { and, eq, type Filter, startsWith } from '../../platform/moray/filter.ts';
import { EtagConflictError, ObjectNotFoundError, UniqueAttributeError } from '../../platform/moray/moray-errors.ts';
import type { Random } from '../../platform/random.ts';
import { type Document, type DocumentNoun, withArticle } from '../../protocol/api/documents/document-noun.ts';
import type { WithAuditRecord } from '../audit-part.ts';
import { ResourceNotFoundError } from '../request-errors.ts';
import { buildBucket } from './document-bucket.ts';

interface DocumentsDeps<Value> {
  buckets: BucketStore;
  random: Random;
  /**
   * Throws the error for the caller if the document may not be created (`before` is undefined) or
   * changed like this.
   */
  check?(after: Value, before: Value | undefined): void | Promise<void>;
  /** Throws the error for the caller if the document may not be deleted. */
  checkDeletion?(value: Value): void | Promise<void>;
}

/** `undefined` accepts any version. */
type ExpectedEtag = string | undefined;

type Fields = Readonly<Record<string, unknown>>;

type Changes<Value> = Fields | ((before: Value) => Fields);

type Versioned<Value> = Pick<BucketObject<Value>, 'value' | 'etag'>;

/** The document has another version than the caller's `If-Match`. */
class VersionMismatchError extends CnapiError {
  constructor(what: string, expected: string) {
    super('EtagConflict', 412, `${what} is not at version "${expected}" any more; read it again and decide again`);
  }
}

/** Another document has these values, which only one may have. */
class ValueTakenError extends CnapiError {
  /** `kind`: the noun, in words. */
  constructor(kind: string, value: Fields, cause: UniqueAttributeError) {
    const others = cause.fields.filter((field) => field !== 'name').map((field) => field.replaceAll('_', ' '));
    const about = [
      cause.fields.includes('name') ? `the name ${JSON.stringify(value.name)}` : '',
      others.length === 0 ? '' : `the same ${others.join(' and ')}`,
    ];
    const message = `There is already ${withArticle(kind)} with ${about.filter((part) => part !== '').join(' and ')}`;
    const errors = cause.fields.map((field) => ({ field, code: 'Duplicate', message: 'value is taken' }));
    super('UniqueAttribute', 409, message, { cause, errors });
  }
}

const UPDATE_ATTEMPTS = 5;
/** The values of a page; one document may be longer. */
const PAGE_BYTES = 1024 * 1024;

export class Documents<Noun extends DocumentNoun = DocumentNoun> {
  readonly noun: Noun;
  readonly #bucket: DocumentBucket;
  readonly #deps: DocumentsDeps<Document<Noun>>;

  constructor(noun: Noun, deps: DocumentsDeps<Document<Noun>>) {
    this.noun = noun;
    this.#bucket = buildBucket(noun);
    this.#deps = deps;
  }

  /** Creates the bucket, or adds what this version declares. Call it after the migrations. */
  prepare(): Promise<void> {
    return this.#deps.buckets.ensureBucket(this.#bucket);
  }

  /**
   * @throws EtagConflictError when the uuid is taken, ValueTakenError, InvalidParametersError
   */
  async create(fields: Fields, withAuditRecord: WithAuditRecord): Promise<Versioned<Document<Noun>>> {
    const { buckets, check, random } = this.#deps;
    const value = this.#whole({ uuid: random.uuid(), ...withoutNulls(fields) });
    await check?.(value, undefined);
    const { etag } = await withAuditRecord(
      (also) => buckets.put(this.#bucket, value.uuid, value, { etag: null, also }),
      value.uuid,
    ).catch((error: unknown) => {
      throw this.#asTakenError(error, value);
    });
    return { value, etag };
  }

  /** @throws ResourceNotFoundError */
  async get(uuid: string): Promise<Versioned<Document<Noun>>> {
    return this.#deps.buckets.get<Document<Noun>>(this.#bucket, uuid).catch((error: unknown) => {
      throw this.#explained(error, uuid);
    });
  }

  /** The documents that exist, by uuid. */
  async getMany(uuids: readonly string[]): Promise<Map<string, Document<Noun>>> {
    const found = await this.#deps.buckets.getMany<Document<Noun>>(this.#bucket, uuids);
    return new Map([...found].map(([uuid, { value }]) => [uuid, value]));
  }

  /**
   * Documents whose fields have these values (a text that ends in `*`: begin so), in order of uuid.
   */
  list(
    fields: Fields,
    { limit, after }: { limit: number; after: string | undefined },
  ): Promise<BucketPage<Document<Noun>>> {
    const wanted = Object.entries(fields).flatMap(([field, value]) =>
      value === undefined ? [] : [this.#filterOf(field, value)],
    );
    return this.#deps.buckets.page(this.#bucket, and(...wanted), { limit, after, bytes: PAGE_BYTES });
  }

  /**
   * Changes the given fields, or those that follow from the document as it was; null removes one.
   * @throws ResourceNotFoundError, VersionMismatchError, ValueTakenError, InvalidParametersError;
   * EtagConflictError after several conflicts
   */
  async update(
    uuid: string,
    changes: Changes<Document<Noun>>,
    expected: ExpectedEtag,
    withAuditRecord: WithAuditRecord,
  ): Promise<Versioned<Document<Noun>>> {
    const { buckets, check } = this.#deps;
    for (let attempt = 1; ; attempt++) {
      const before = await this.get(uuid);
      if (expected !== undefined && expected !== before.etag) throw this.#mismatch(uuid, expected);
      const value = this.#whole({
        ...before.value,
        ...(typeof changes === 'function' ? changes(before.value) : changes),
      });
      await check?.(value, before.value);
      try {
        const { etag } = await withAuditRecord((also) =>
          buckets.put(this.#bucket, uuid, value, { etag: before.etag, also }),
        );
        return { value, etag };
      } catch (error) {
        if (!(error instanceof EtagConflictError) || attempt === UPDATE_ATTEMPTS)
          throw this.#asTakenError(error, value);
      }
    }
  }

  /** @throws ResourceNotFoundError, VersionMismatchError */
  async delete(uuid: string, expected: ExpectedEtag, withAuditRecord: WithAuditRecord): Promise<void> {
    const { buckets, checkDeletion } = this.#deps;
    if (checkDeletion !== undefined) await checkDeletion((await this.get(uuid)).value);
    await withAuditRecord((also) => buckets.delete(this.#bucket, uuid, { etag: expected, also })).catch(
      (error: unknown) => {
        throw error instanceof EtagConflictError
          ? this.#mismatch(uuid, String(expected))
          : this.#explained(error, uuid);
      },
    );
  }

  /** How many documents have each value of an indexed field; for metrics. */
  countBy(field: string): Promise<Record<string, number>> {
    return this.#deps.buckets.countBy(this.#bucket, field);
  }

  /** @throws InvalidParametersError for a required field that is missing */
  #whole(fields: Fields): Document<Noun> {
    const result = this.noun.document.safeParse(withoutNulls(fields));
    // The noun's own schema: the type of `document` does not tell of which fields it was made.
    if (result.success) return result.data as Document<Noun>;
    const errors = result.error.issues.map(({ path, message }) => ({
      field: String(path[0]),
      code: 'Invalid',
      message,
    }));
    throw new InvalidParametersError(400, errors);
  }

  #filterOf(field: string, value: unknown): Filter {
    const text = String(value);
    const isPrefix = this.noun.indexes[field] === 'string' && text.endsWith('*');
    return isPrefix ? startsWith(field, text.slice(0, -1)) : eq(field, text);
  }

  #explained(error: unknown, uuid: string): unknown {
    return error instanceof ObjectNotFoundError
      ? new ResourceNotFoundError(`There is no ${this.noun.name} ${uuid}`)
      : error;
  }

  #asTakenError(error: unknown, value: Fields): unknown {
    return error instanceof UniqueAttributeError
      ? new ValueTakenError(this.noun.name.replaceAll('_', ' '), value, error)
      : error;
  }

  #mismatch(uuid: string, expected: string): CnapiError {
    return new VersionMismatchError(`${this.noun.name} ${uuid}`, expected);
  }
}

function withoutNulls<Value extends Fields>(fields: Value): Value {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null)) as Value;
}
