/** Whether that version of Node strips types without being told to. */
export function isNewEnough(version: string): boolean;
