/** Which commands an organization's push jobs may run. Pure. */
import type { Organization } from '../../protocol/api/organizations.ts';

/** An entry that ends in `*` allows every command that begins so; without a list all are allowed. */
export function isAllowedCommand(
  { allowed_commands: allowed }: Pick<Organization, 'allowed_commands'>,
  command: string,
): boolean {
  return (
    allowed === undefined ||
    allowed.some((entry) => (entry.endsWith('*') ? command.startsWith(entry.slice(0, -1)) : command === entry))
  );
}
