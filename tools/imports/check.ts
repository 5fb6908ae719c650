/**
 * Checks the structure of the code as the house style requires: imports run one way, no cycles,
 * files that say in their header that they are pure without I/O, subsystems with a declared type,
 * files of limited length, no mention of a file that does not exist; and the table of allowed
 * imports has no unused entry. Both functions return complaints, one line each; an empty list means
 * success.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { base, limits, mayImport, pureBuiltins } from './layers.ts';
import { importsOf, readSources, type SourceFile } from './source.ts';

/** Paths from the root of the project. The compiler checks the relative paths of imports. */
const MENTION = /(?<![\w./-])(?:docs|spec|lib|test|tools)\/[\w./-]*\w\.(?:md|ts|mjs|sql)\b/g;
/** Folders of these parts may not import each other. */
const HAS_FOLDERS = /^lib\/(control|cli|agent)\//;
const SUBSYSTEM = /^lib\/control\/.+\/subsystem\.ts$/;
const TYPES_ONLY = /^(?:import|export) type\b[^;]*;/gm;

export function checkTree(root: string): string[] {
  const sources = readSources(root, ['server.ts', 'lib', 'tools', 'test']);
  const product = sources.filter(({ name }) => name === 'server.ts' || name.startsWith('lib/'));
  return [
    ...product.flatMap(checkDirection),
    ...product.filter(saysPure).flatMap(checkPurity),
    ...product.filter(({ name }) => SUBSYSTEM.test(name)).flatMap(checkSubsystem),
    ...cyclesOf(importsOfFiles(product)).map((cycle) => `import cycle: ${cycle.join(' → ')}`),
    ...cyclesOf(importsOfFolders(product)).map((cycle) => `folders import each other: ${cycle.join(' → ')}`),
    ...sources.flatMap(checkLength),
    ...sources.filter(({ name }) => !name.startsWith('test/tools/')).flatMap((source) => checkMentions(root, source)),
  ];
}

/** An entry that no import uses would let a wrong import pass. */
export function checkTable(root: string, table = mayImport): string[] {
  const sources = readSources(root, ['server.ts', 'lib']);
  const used = new Set(
    sources.flatMap(({ name, imports }) =>
      localImports(name, imports).map((target) => `${layerOf(name, table)} → ${layerOf(target, table)}`),
    ),
  );
  return Object.entries(table).flatMap(([from, allowed]) => {
    if (from.includes('*')) return [];
    const idle = allowed.filter((to) => !base.includes(to) && !to.includes('*') && !used.has(`${from} → ${to}`));
    return idle.map((to) => `tools/imports/layers.ts: ${from} may import ${to}, and does not: take it out`);
  });
}

function checkDirection({ name, imports }: SourceFile): string[] {
  const from = layerOf(name);
  const allowed = allowedTo(from);
  if (allowed === undefined) return [`${name}: lib/${from} has no line in tools/imports/layers.ts`];
  return localImports(name, imports).flatMap((target) => {
    const to = target.startsWith('lib/') ? layerOf(target) : target;
    const file = target.replace('lib/', '');
    if (to === from || allowed.some((entry) => entry === to || formOf(entry).test(to) || formOf(entry).test(file)))
      return [];
    return [`${name} imports ${target}: ${from} may not know ${to}`];
  });
}

/** Whether the header says that the file is pure. */
function saysPure({ lines }: SourceFile): boolean {
  const end = lines.findIndex((line) => line.endsWith('*/'));
  return lines[0]?.startsWith('/**') === true && /\bPure\b/.test(lines.slice(0, end + 1).join('\n'));
}

function checkPurity({ name, lines }: SourceFile): string[] {
  const impure = importsOf(lines.join('\n').replace(TYPES_ONLY, '')).filter(
    (specifier) =>
      specifier.endsWith('-store.ts') || (specifier.startsWith('node:') && !pureBuiltins.includes(specifier)),
  );
  return impure.map((specifier) => `${name} imports ${specifier}: a pure file does no I/O`);
}

/**
 * Without the declared type the compiler accepts a misspelt hook in the object that `open` returns.
 */
function checkSubsystem({ name, lines }: SourceFile): string[] {
  const text = lines.join('\n');
  if (!/^ {2}open\b/m.test(text) || /^ {2}open\([^)]*\): Subsystem \{/m.test(text)) return [];
  return [`${name}: write \`open(…): Subsystem {\`, so that the compiler refuses a hook that does not exist`];
}

function checkLength({ name, lines }: SourceFile): string[] {
  if (name === 'server.ts' && lines.length > limits.server) {
    return [`${name} has ${lines.length} lines; it stays under ${limits.server}`];
  }
  const excused = lines.slice(0, 20).some((line) => line.includes(`${limits.file} lines`));
  if (lines.length <= limits.file + 1 || excused) return [];
  return [`${name} has ${lines.length} lines: split it, or say in its header why it passes ${limits.file} lines`];
}

/** Every file mentioned in a comment must exist. */
function checkMentions(root: string, { name, lines }: SourceFile): string[] {
  const mentioned = new Set(lines.flatMap((line) => line.match(MENTION) ?? []));
  const gone = [...mentioned].filter((file) => !existsSync(path.join(root, file)));
  return gone.map((file) => `${name} speaks of ${file}, which is not there`);
}

function importsOfFiles(sources: readonly SourceFile[]): Map<string, string[]> {
  return new Map(sources.map(({ name, imports }) => [name, localImports(name, imports)]));
}

/**
 * Which folder of the agent, of a part of the control plane, or of the command line, imports which
 * other folder of that part. Leaves out the files beside these folders: among them are the part's
 * foundation and the drivers on top of it.
 */
function importsOfFolders(sources: readonly SourceFile[]): Map<string, string[]> {
  const edges = new Map<string, string[]>();
  for (const { name, imports } of sources.filter(({ name }) => HAS_FOLDERS.test(name))) {
    const part = layerOf(name);
    const from = folderOf(name);
    const folders = localImports(name, imports)
      .filter((target) => layerOf(target) === part)
      .map(folderOf)
      .filter((folder) => folder !== from && folder !== `lib/${part}`);
    if (from !== `lib/${part}`) edges.set(from, [...(edges.get(from) ?? []), ...folders]);
  }
  return edges;
}

/** The folder of a file. Folders of the agent count together with the folders in them. */
function folderOf(name: string): string {
  const [ofAgent] = /^lib\/agent\/[^/]+(?=\/)/.exec(name) ?? [];
  return ofAgent ?? path.posix.dirname(name);
}

/** Returns each cycle once, starting with its first name. */
function cyclesOf(edges: ReadonlyMap<string, readonly string[]>): string[][] {
  const done = new Set<string>();
  const found = new Map<string, string[]>();
  const visit = (name: string, trail: readonly string[]): void => {
    const at = trail.indexOf(name);
    if (at >= 0) {
      const cycle = rotated(trail.slice(at));
      found.set(cycle.join(), [...cycle, cycle[0] ?? '']);
      return;
    }
    if (done.has(name)) return;
    for (const target of edges.get(name) ?? []) visit(target, [...trail, name]);
    done.add(name);
  };
  for (const name of edges.keys()) visit(name, []);
  return [...found.values()];
}

function rotated(cycle: readonly string[]): string[] {
  const first = cycle.indexOf([...cycle].sort()[0] ?? '');
  return [...cycle.slice(first), ...cycle.slice(0, first)];
}

/** Returns the imports of `name` from this project, as paths from the root. */
function localImports(name: string, imports: readonly string[]): string[] {
  return imports
    .filter((specifier) => specifier.startsWith('.'))
    .map((specifier) => path.posix.join(path.posix.dirname(name), specifier));
}

/**
 * Returns the part of lib that contains the file: the longest entry of the table that matches, or
 * the name of its folder.
 */
export function layerOf(name: string, table = mayImport): string {
  const inside = name.replace(/^lib\//, '');
  const parts = Object.keys(table).flatMap((part) => startOf(part, inside) ?? []);
  return parts.sort((a, b) => b.length - a.length)[0] ?? path.posix.dirname(inside);
}

/** The part of this form, or of this name, that contains the file. */
function startOf(part: string, file: string): string | undefined {
  const [start] = new RegExp(`^${formOf(part).source.slice(1, -1)}(?=/|$)`).exec(file) ?? [];
  return start;
}

/**
 * What a part may import; for a form, the name that stands for its `*` is put into what it allows.
 */
function allowedTo(part: string): readonly string[] | undefined {
  const known = mayImport[part];
  if (known !== undefined) return known;
  const forms = Object.keys(mayImport).filter((form) => form.includes('*') && formOf(form).test(part));
  const [form] = forms.sort((a, b) => b.length - a.length);
  if (form === undefined) return undefined;
  const [, star = ''] = formOf(form).exec(part) ?? [];
  return mayImport[form]?.map((entry) => entry.replace('*', star));
}

/** `*` stands for one name without a dot, so never for a file. */
function formOf(part: string): RegExp {
  return new RegExp(`^${part.replace(/[.]/g, '\\.').replace('*', '([^/.]+)')}$`);
}
