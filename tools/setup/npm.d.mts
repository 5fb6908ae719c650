import type { Lock } from './lock.mjs';

/** Runs `npm ARGS` in `folder`; adds its pid to `lock`. Throws SetupError when it fails. */
export function runNpm(folder: string, args: readonly string[], lock: Lock): Promise<void>;
