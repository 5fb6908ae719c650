/**
 * What an agent does to its machine only if it was started with an option. Its sysinfo has the list
 * of what it allows, so an instance refuses such work before the server is drained for it. Pure.
 */
export type AllowedWork = 'reboot' | 'setup' | 'factory-reset';

/** The name of the list in the sysinfo. */
export const ALLOWED_WORK = 'CN Agent Allows';

interface Refusal {
  code: string;
  /** What follows the name of the agent in the sentence. */
  reason: string;
}

const REFUSALS: Readonly<Record<AllowedWork, Refusal>> = {
  reboot: { code: 'RebootNotAllowed', reason: 'was started without --allow-reboot' },
  setup: {
    code: 'SetupNotAllowed',
    reason:
      'was started without --allow-setup, so it neither names its machine nor runs a script at the set-up of that',
  },
  'factory-reset': {
    code: 'FactoryResetNotAllowed',
    reason: 'was started without --factory-reset, which names the program that resets its machine',
  },
};

/** The code and the sentence with which `agent`, a name at the beginning of a sentence, refuses. */
export function refusalOfWork(work: AllowedWork, agent: string): { code: string; message: string } {
  const { code, reason } = REFUSALS[work];
  return { code, message: `${agent} ${reason}` };
}

/** False if the sysinfo does not say so: agents of older versions, and Triton's, have no list. */
export function forbidsWork(sysinfo: Readonly<Record<string, unknown>>, work: AllowedWork): boolean {
  const allowed = sysinfo[ALLOWED_WORK];
  return Array.isArray(allowed) && !allowed.includes(work);
}
