/**
 * Names of environment variables that reach a command: a shell exports no other, and JavaScript
 * objects lose `__proto__`.
 */
export const isVariableName = (name: string): boolean => /^[A-Za-z_]\w*$/.test(name) && name !== '__proto__';
