/** The patterns that a pattern with braces stands for: `{a,b}.ts` is `a.ts` and `b.ts`. */
export function alternativesOf(pattern: string): string[] {
  const [, before = '', inside, after = ''] = /^(.*?)\{([^{}]*)\}(.*)$/.exec(pattern) ?? [];
  if (inside === undefined) return [pattern];
  return inside.split(',').flatMap((one) => alternativesOf(`${before}${one}${after}`));
}
