/**
 * Deliberate defects of the product, one at a time in a copy of it, each of which the part `cost`
 * must find: a bound is removed, and an attack that was once found by hand works again. A defect is
 * given by the text that it replaces: if the product has changed and the text does not occur
 * exactly once, the defect must be rewritten. `npm run fuzz -- --defects`
 */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { guard } from '../../tools/processes/guardian.ts';
import { inChangedCopy, type TextChange } from '../support/product-text.ts';

export interface Defect {
  name: string;
  /** The beginning of the finding's line. */
  finding: string;
  changes: TextChange[];
}

/** A walk over the values that makes several objects of each. */
const costlyWalk: TextChange = {
  find: 'return reasonAt(value, MAX_JSON_DEPTH);',
  put: `const open: { value: unknown; depth: number }[] = [{ value, depth: 0 }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value: one, depth } = next;
    if (typeof one !== 'object' || one === null) continue;
    for (const [key, inner] of Object.entries(one)) open.push({ value: key, depth }, { value: inner, depth: depth + 1 });
  }
  return reasonAt(value, MAX_JSON_DEPTH);`,
};

export const defects: readonly Defect[] = [
  {
    name: 'a body is read although the route takes no parameters in it, and its values are not counted',
    finding: 'FOUND in cost: {"kind":"request","method":"GET","path":"/ping"',
    changes: [
      costlyWalk,
      {
        find: 'if (route.takesAnyBody !== true && !Object.hasOwn(route.params.shape, name)) continue;',
        put: '',
      },
      {
        find: 'checkDeclared(route, rawParams);\n  checkStorable(route, rawParams);',
        put: 'checkStorable(route, rawParams);\n  checkDeclared(route, rawParams);',
      },
      {
        find: 'const hasBody = takesBody(route)',
        put: 'const hasBody = true',
      },
      { find: 'if (!takesBody(route)) exchange.dropBody();', put: '' },
      {
        find: 'countJsonValues(content, { maxValues: MAX_BODY_VALUES })',
        put: 'countJsonValues(content, { maxValues: 1e9 })',
      },
    ],
  },
  {
    name: 'the values of a frame are not counted',
    finding: 'FOUND in cost: {"kind":"frames","head":"{\\"type\\":\\"status\\"',
    changes: [
      costlyWalk,
      {
        find: 'const values = countJsonValues(text, { maxValues: limits.values, maxDepth: MAX_FRAME_DEPTH });',
        put: 'const values = Math.min(countJsonValues(text, { maxValues: 1e9, maxDepth: MAX_FRAME_DEPTH }), 0);',
      },
      { find: 'status: { bytes: 4 * 1024 * 1024,', put: 'status: { bytes: 1e9,' },
    ],
  },
  {
    name: 'the elements of a parameter are not counted before each of them is checked',
    finding: 'FOUND in cost: {"kind":"request","method":"POST","path":"/servers/{server}/execute","field":"args"',
    changes: [
      {
        find: 'args: textArray(MAX_COMMAND_ARGS).optional(),',
        put: 'args: z.array(z.union([z.string(), z.number(), z.boolean()]).transform(String)).optional(),',
      },
    ],
  },
  {
    name: 'control frames cost nothing',
    finding: 'FOUND in cost: {"kind":"flood","frame":"pongs"',
    changes: [
      {
        find: 'this.#charge(costOfRead(chunk.length, Math.min(frames, maxFrames)), now);',
        put: 'this.#charge(costOfRead(chunk.length, 0), now);',
      },
    ],
  },
  {
    name: 'a list is read as a whole, and the memory of answers is not limited',
    finding: 'FOUND in cost: {"kind":"lists"',
    changes: [
      {
        find: 'const FIRST_CHUNK: ChunkSize = { rows: 16, bytes: CHUNK_BYTES };',
        put: 'const FIRST_CHUNK: ChunkSize = { rows: 1_000, bytes: CHUNK_BYTES };',
      },
      {
        find: 'const CHUNK_BYTES = ROW_STREAM_BYTES / 4;',
        put: 'const CHUNK_BYTES = 1_000 * ROW_STREAM_BYTES;',
      },
      {
        find: 'if (!isShareFull && !isFull) return;',
        put: 'if (maxBytes > 0 || isShareFull || isFull) return;',
      },
    ],
  },
];

/** Resolves with the number of defects that were not found. */
export async function findDefects(say: (text: string) => void): Promise<number> {
  let missed = 0;
  for (const defect of defects) {
    const { isFound, lines } = await finds(defect);
    say(`${isFound ? 'found ' : 'missed'} ${defect.name}`);
    for (const line of lines) say(`  ${line}`);
    if (!isFound) missed += 1;
  }
  return missed;
}

async function finds({ changes, finding }: Defect): Promise<{ isFound: boolean; lines: string[] }> {
  return inChangedCopy(changes, async (copy) => {
    const said = await runIn(copy);
    const found = said.filter((line) => line.startsWith('FOUND '));
    return { isFound: found.some((line) => line.startsWith(finding)), lines: found.map((line) => line.slice(0, 300)) };
  });
}

/** Only the known cases. */
async function runIn(copy: string): Promise<string[]> {
  const main = path.join(copy, 'test/fuzz/main.ts');
  const child = spawn(process.execPath, [main, '--part', 'cost', '--inputs', '1'], {
    cwd: copy,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  guard(child);
  let said = '';
  for await (const text of child.stdout) said += String(text);
  return said.split('\n');
}
