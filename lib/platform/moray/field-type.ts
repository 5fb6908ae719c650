/** The types of an indexed field: in a filter's text, in a JSON value, and in SQL. Pure. */
import { UUID } from '../uuid.ts';
export type FieldType = 'string' | 'number' | 'boolean' | 'timestamp' | 'uuid';

export const sqlTypes: Record<FieldType, string> = {
  string: 'text',
  number: 'numeric',
  boolean: 'boolean',
  timestamp: 'timestamptz',
  uuid: 'uuid',
};

const patterns = {
  number: /^[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?$/,
  timestamp: /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/,
  uuid: UUID,
};

/**
 * The value for SQL, or undefined if `text` is not of that type. A date without a time is midnight
 * UTC.
 */
export function parseFieldText(type: FieldType, text: string): string | boolean | undefined {
  switch (type) {
    case 'string':
      return text.includes('\0') ? undefined : text;
    case 'number':
      return patterns.number.test(text) ? text : undefined;
    case 'boolean':
      return parseBoolean(text.toLowerCase());
    case 'timestamp':
      return isTimestamp(text) ? (text.includes('T') ? text : `${text}T00:00:00Z`) : undefined;
    case 'uuid':
      return patterns.uuid.test(text.toLowerCase()) ? text.toLowerCase() : undefined;
    default:
      return type satisfies never;
  }
}

/** True when a JSON value can be indexed as `type`; null and absent always can. */
export function isIndexable(type: FieldType, value: unknown): boolean {
  if (value === null || value === undefined) return true;
  if (type === 'number') return typeof value === 'number' && Number.isFinite(value);
  if (type === 'boolean') return typeof value === 'boolean';
  return typeof value === 'string' && (type === 'string' || parseFieldText(type, value) !== undefined);
}

function parseBoolean(text: string): boolean | undefined {
  return text === 'true' ? true : text === 'false' ? false : undefined;
}

function isTimestamp(text: string): boolean {
  return patterns.timestamp.test(text) && !Number.isNaN(Date.parse(text)) && isRealDay(text.slice(0, 10));
}

/** SQL refuses the year 0, and the 31st of February, which `Date` takes for the 3rd of March. */
function isRealDay(date: string): boolean {
  return date >= '0001' && new Date(date).toISOString().startsWith(date);
}
