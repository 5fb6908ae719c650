/** Requests to the monitor of a run, by its pipe `ctl`. It answers none of them. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

/** Asks conmon to open its log again; it ignores the two numbers. */
export const REOPEN_LOG = '2 0 0\n';

export const resizeTerminal = ({ columns, rows }: { columns: number; rows: number }): string =>
  `1 ${rows} ${columns}\n`;

/** False if no monitor runs. */
export async function askMonitor(control: string, request: string): Promise<boolean> {
  const pipe = await open(control, constants.O_WRONLY | constants.O_NONBLOCK).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENXIO' || error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (pipe === undefined) return false;
  try {
    await pipe.write(request);
    return true;
  } finally {
    await pipe.close();
  }
}
