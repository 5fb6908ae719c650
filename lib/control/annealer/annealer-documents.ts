/** The documents of the annealer, roles and deployments, and the rules of their changes. */
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import {
  type DeploymentDocument,
  deployments,
  type RoleDocument,
  roles,
} from '../../protocol/api/documents/annealer.ts';
import { TooManyDocumentsError } from '../documents/document-errors.ts';
import { Documents } from '../documents/documents.ts';
import { InvalidArgumentError } from '../request-errors.ts';
import { DefinitionInUseError } from './annealer-errors.ts';
import { hasNoderolesOf } from './noderole-store.ts';
import { type RoleDefinition, RoleGraph } from './role-graph.ts';

interface AnnealerDocumentsDeps {
  database: Queryable;
  buckets: BucketStore;
  random: Random;
}

const MAX_ROLES = 300;
/** Limits a template and the data of a noderole; the inputs of a run consist of several. */
export const MAX_DATA_BYTES = 32_768;
const MAX_DEPLOYMENTS = 1_000;
const PAGE = 1_000;
/** Levels of deployments below each other. */
const MAX_DEPTH = 10;

export class AnnealerDocuments {
  readonly roles: Documents<typeof roles>;
  readonly deployments: Documents<typeof deployments>;

  constructor({ database, buckets, random }: AnnealerDocumentsDeps) {
    this.roles = new Documents(roles, {
      buckets,
      random,
      check: (after, before) => this.#checkRole(after, before),
      checkDeletion: async ({ name }) => {
        if (await hasNoderolesOf(database, { role: name })) throw new DefinitionInUseError('role', name);
      },
    });
    this.deployments = new Documents(deployments, {
      buckets,
      random,
      check: (after, before) => this.#checkDeployment(after, before),
      checkDeletion: async ({ uuid, name }) => {
        if (await hasNoderolesOf(database, { deploymentId: uuid })) throw new DefinitionInUseError('deployment', name);
        const below = await this.deployments.list({ parent: uuid }, { limit: 1, after: undefined });
        const [child] = below.objects;
        if (child !== undefined)
          throw new InvalidArgumentError(`deployment ${name} is the parent of ${child.value.name}; delete that first`);
      },
    });
  }

  async prepare(): Promise<void> {
    await this.roles.prepare();
    await this.deployments.prepare();
  }

  /** All roles, by name. */
  async readRoles(): Promise<ReadonlyMap<string, RoleDocument>> {
    return new Map((await readAll(this.roles)).map((role) => [role.name, role]));
  }

  async findRole(name: string): Promise<RoleDocument | undefined> {
    const { objects } = await this.roles.list({ name }, { limit: 1, after: undefined });
    return objects[0]?.value;
  }

  /** A deployment and those above it, up to the root. @throws ResourceNotFoundError */
  async deploymentPath(uuid: string): Promise<readonly DeploymentDocument[]> {
    const path = [(await this.deployments.get(uuid)).value];
    for (let top = path[0]; top?.parent !== undefined && path.length < MAX_DEPTH; top = path.at(-1)) {
      const found = await this.deployments.getMany([top.parent]);
      const above = found.get(top.parent);
      if (above === undefined) break;
      path.push(above);
    }
    return path;
  }

  /** Roles form no cycle, and a role has what its jig needs. */
  async #checkRole(after: RoleDocument, before: RoleDocument | undefined): Promise<void> {
    const bytes = Buffer.byteLength(JSON.stringify(after.template));
    if (bytes > MAX_DATA_BYTES)
      throw new InvalidArgumentError(
        `the template of role ${after.name} has ${bytes} bytes; at most ${MAX_DATA_BYTES}`,
      );
    if (after.jig === 'script' && after.script === undefined)
      throw new InvalidArgumentError(`role ${after.name} has the jig script and no script`);
    if (before !== undefined && before.name !== after.name)
      throw new InvalidArgumentError(`role ${before.name} cannot be renamed: noderoles and other roles name it`);
    const others = (await readAll(this.roles)).filter(({ uuid }) => uuid !== after.uuid);
    if (before === undefined && others.length >= MAX_ROLES) throw new TooManyDocumentsError('roles', MAX_ROLES);
    const cycle = new RoleGraph([...others, after].map(toRoleDefinition)).findCycleFrom(after.name);
    if (cycle !== undefined)
      throw new InvalidArgumentError(
        `role ${after.name} would be part of a cycle, or need one: ${cycle.join(' requires ')}`,
      );
  }

  async #checkDeployment(after: DeploymentDocument, before: DeploymentDocument | undefined): Promise<void> {
    if (before === undefined) {
      const all = await readAll(this.deployments);
      if (all.length >= MAX_DEPLOYMENTS) throw new TooManyDocumentsError('deployments', MAX_DEPLOYMENTS);
    }
    if (after.parent === undefined) return;
    if (before !== undefined && before.parent !== after.parent)
      throw new InvalidArgumentError(`deployment ${after.name} cannot get another parent: its noderoles depend on it`);
    const above = await this.deployments.getMany([after.parent]);
    if (!above.has(after.parent)) throw new InvalidArgumentError(`there is no deployment ${after.parent}`);
    if (after.parent === after.uuid || (await this.deploymentPath(after.parent)).length >= MAX_DEPTH)
      throw new InvalidArgumentError(`deployments are at most ${MAX_DEPTH} levels deep`);
  }
}

/** All documents of a noun of which there are few. */
async function readAll<Noun extends typeof roles | typeof deployments>(documents: Documents<Noun>) {
  const all = [];
  let after: string | undefined;
  do {
    const { objects, next } = await documents.list({}, { limit: PAGE, after });
    all.push(...objects.map(({ value }) => value));
    after = next;
  } while (after !== undefined);
  return all;
}

export const toRoleDefinition = ({ flags, runs_after: runsAfter, ...role }: RoleDocument): RoleDefinition => ({
  ...role,
  flags: flags as RoleDefinition['flags'],
  runsAfter,
});
