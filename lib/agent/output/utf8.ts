/** Cuts UTF-8 between characters. Pure. */

/**
 * How many of `bytes` form whole characters; fewer than all when the last character is incomplete.
 */
export function completeLength(bytes: Uint8Array): number {
  const last = bytes.length - 1;
  for (let back = 0; back < 3 && back <= last; back++) {
    const byte = bytes[last - back] as number;
    if ((byte & 0xc0) === 0x80) continue;
    return byte >= 0xc0 && back + 1 < sequenceLength(byte) ? last - back : bytes.length;
  }
  return bytes.length;
}

/** How many bytes at the start belong to a character that began earlier. */
export function continuationLength(bytes: Uint8Array): number {
  let stray = 0;
  while (stray < 3 && stray < bytes.length && ((bytes[stray] as number) & 0xc0) === 0x80) stray += 1;
  return stray;
}

function sequenceLength(lead: number): number {
  if (lead >= 0xf0) return 4;
  return lead >= 0xe0 ? 3 : 2;
}
