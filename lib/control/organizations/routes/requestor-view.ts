/** A requestor as it sees itself. Pure. */
import { mayAct, type Requestor } from '../requestor.ts';

export function toRequestor(requestor: Requestor) {
  const { name, kind, groups } = requestor;
  const [may_read, may_write] = [mayAct(requestor, 'read'), mayAct(requestor, 'write')];
  return { name, kind, groups: [...groups].toSorted(), may_read, may_write };
}
