/**
 * Runs the short test files of TEST_FILES (a JSON list) one after another in this process, each as
 * a subtest with the file's name. (tap names the folders of `t.testdir` after the arguments of the
 * process, so these must stay short.) The start of a process and the load of the project's modules
 * take longer than most of these files do.
 *
 * Each file gets the subtest when it imports `tap`. A module that several test files import must
 * not import `tap`: it is loaded once, and its tests would belong to the file that came first. It
 * takes `t` as a parameter.
 */
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';

const SCHEME = 'test-of:';
const root = path.resolve(import.meta.dirname, '../..');
const files: string[] = JSON.parse(process.env.TEST_FILES ?? '[]');
delete process.env.TEST_FILES;
const timeout = Number(process.env.TAP_TIMEOUT ?? 0) * 1000;

/** Tests by the URL of their file. */
export const tests = new Map<string, Test>();

registerHooks({
  resolve(specifier, context, next) {
    const { parentURL = '' } = context;
    if (specifier !== 'tap' || parentURL === import.meta.url || isInPackage(parentURL)) return next(specifier, context);
    if (tests.has(parentURL)) return { url: SCHEME + parentURL, format: 'module', shortCircuit: true };
    throw new Error(`${parentURL} is not a test file and imports tap; it must take t as a parameter`);
  },
  load(url, context, next) {
    if (!url.startsWith(SCHEME)) return next(url, context);
    const file = JSON.stringify(url.slice(SCHEME.length));
    const source = `import { tests } from ${JSON.stringify(import.meta.url)};
      export * from ${JSON.stringify(import.meta.resolve('tap'))};
      export default tests.get(${file});`;
    return { format: 'module', source, shortCircuit: true };
  },
});

t.setTimeout(0);
t.plan(files.length);
for (const file of files) {
  const url = pathToFileURL(path.resolve(root, file)).href;
  // Not awaited: what a test file imports waits until this module has been evaluated. tap runs one
  // at a time.
  void t.test(file, { timeout }, async (test) => {
    tests.set(url, test);
    await import(url);
  });
}

function isInPackage(url: string): boolean {
  return url.includes('/node_modules/');
}
