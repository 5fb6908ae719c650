/** The argument with which the commands of `cnapi org` name an organization. */
import type { Command } from 'commander';
import type { Organization } from '../../protocol/api/documents/organizations.ts';
import type { Context } from '../invocation/context.ts';
import { findOrganization } from '../lookup/owners.ts';

export const ofOrganization = (command: Command): Command =>
  command.argument('<organization>', 'the name or uuid of the organization');

/** @throws UsageError */
export const organizationOf = ({ client }: Context, name: unknown): Promise<Organization> =>
  findOrganization(client, String(name));
