/** Answers the routes of boot parameters (lib/protocol/api/boot.ts). */
import { withoutUndefined } from '../../../platform/defined-fields.ts';
import { bootContracts } from '../../../protocol/api/boot.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { bind, empty, ok, type Route } from '../../http/route.ts';
import type { Boot } from '../boot/boot.ts';
import type { BootChange } from '../boot/boot-parameters.ts';
import { DEFAULTS_KEY } from '../server.ts';

interface BootRouteDeps {
  boot: Pick<Boot, 'paramsOf' | 'defaults' | 'replace' | 'merge'>;
}

interface Given {
  platform?: string | undefined;
  boot_platform?: string | undefined;
  kernel_args?: Record<string, unknown> | undefined;
  boot_params?: Record<string, unknown> | undefined;
  params?: Record<string, unknown> | undefined;
  kernel_flags?: Record<string, unknown> | undefined;
  boot_modules?: unknown[] | undefined;
  default_console?: string | undefined;
  serial?: string | undefined;
}

/** An answer with 16 modules. */
const ANSWER_BYTES = 256 * 1024;

export function bootRoutes({ boot }: BootRouteDeps): Route[] {
  return bind(
    bootContracts,
    {
      GetBootDefaults: async ({ actor }) => ok(await boot.defaults(viewOf(actor))),
      async ReplaceBootDefaults({ params }) {
        await boot.replace(DEFAULTS_KEY, changeOf(params));
        return empty(204);
      },
      async ChangeBootDefaults({ params }) {
        // As in Triton's CNAPI: modules that are not named are removed.
        await boot.merge(DEFAULTS_KEY, { modules: [], ...changeOf(params) });
        return empty(204);
      },
      GetBootParams: async ({ actor, params }) => ok(await boot.paramsOf(params.server_uuid, viewOf(actor))),
      async ReplaceBootParams({ params }) {
        return ok({ stats: await boot.replace(params.server_uuid, changeOf(params)) });
      },
      async ChangeBootParams({ params }) {
        await boot.merge(params.server_uuid, changeOf(params));
        return empty(204);
      },
    },
    { GetBootDefaults: { answerBytes: ANSWER_BYTES }, GetBootParams: { answerBytes: ANSWER_BYTES } },
  );
}

/** Only what is given, so that defaults show through. */
function changeOf(given: Given): BootChange {
  return withoutUndefined({
    platform: given.platform ?? given.boot_platform,
    kernelArgs: given.kernel_args ?? given.boot_params ?? given.params,
    kernelFlags: given.kernel_flags,
    modules: given.boot_modules,
    console: given.default_console,
    serial: given.serial,
  });
}

const viewOf = (actor: Actor) => ({ hidesSecrets: !hasRight(actor, 'boot-secrets') });
