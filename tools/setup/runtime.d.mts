/** Whether this version of Node strips types by default. */
export function isNewEnough(version: string): boolean;
