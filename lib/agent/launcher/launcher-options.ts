/**
 * What the launcher needs of the agent's options. It reads nothing else, and refuses nothing: a
 * version that it starts may have options that the launcher's installation does not know.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

interface LauncherOptions {
  /** Undefined: the agent will say what is wrong, or show its help. */
  data: string | undefined;
  trialMs: number;
}

export const DEFAULT_TRIAL_SECONDS = 120;

export function parseLauncherOptions(args: string[]): LauncherOptions {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const { values } = parseArgs({
    args,
    strict: false,
    options: { data: text, config: text, 'package-trial': text, help: flag },
  });
  if (values.help === true) return { data: undefined, trialMs: 0 };
  const stored = typeof values.config === 'string' ? readConfig(values.config) : {};
  const data = values.data ?? stored.data;
  const seconds = Number(values['package-trial'] ?? stored.packageTrial ?? DEFAULT_TRIAL_SECONDS);
  return {
    data: typeof data === 'string' && data !== '' ? data : undefined,
    trialMs: (seconds > 0 ? seconds : DEFAULT_TRIAL_SECONDS) * 1000,
  };
}

function readConfig(file: string): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
