/** The error that set-up shows its user: what failed and what to do about it, without a stack. */
export class SetupError extends Error {}

const advice = [
  [
    /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|network/i,
    "the npm registry could not be reached. Check the network (and npm's registry and proxy settings), then run the same command again",
  ],
  [/ENOSPC|EDQUOT/, 'the disk is full. Make about 1 GB of room, then run the same command again'],
  [
    /EACCES|EPERM|EROFS/,
    'this user may not write there. Run as the user who owns the checkout, or give the checkout to this user (chown -R)',
  ],
  [
    /EINTEGRITY/,
    'a package is not what the lock file says it is; clear the cache (npm cache clean --force) and try again',
  ],
];

/**
 * Creates a SetupError for `doing`, with the advice that matches `details` (an error code, or the
 * output of a program).
 */
export function failure(doing, details) {
  const [, hint] = advice.find(([pattern]) => pattern.test(details)) ?? [
    undefined,
    'see the lines above; running the same command again repairs an interrupted set-up',
  ];
  const tail = details.trim().split('\n').filter(isWorthReading).slice(-12).join('\n  ');
  return new SetupError(`${doing} failed:\n  ${tail}\ncnapi: ${hint}`);
}

/** Removes npm's empty lines, its stacks, and the error object that repeats its message. */
function isWorthReading(line) {
  return !/^npm (?:error|ERR!)(?:\s*$|\s{2,}|\s*\})/.test(line);
}
