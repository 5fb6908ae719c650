/**
 * How long tests wait before they give up, shared by all of them.
 *
 * Tests run on shared machines, where any process may be suspended for seconds. A test therefore
 * never asserts a time that only such a suspension exceeds; that would prove nothing about the
 * product. A test proves that something happens, why it happens, and that nothing happens too
 * early. It gives up only when something surely hangs, and prints in a comment how long it took.
 * The times are checked where time is a parameter (test/control/roster, on a manual clock) and
 * measured by the bench.
 */

/**
 * After this time beyond its due time, an event counts as never happening. `npm run mutate` sets a
 * shorter time: most of its mutants stop something from happening at all.
 */
export const HANG_MS = Number(process.env.CNAPI_TEST_HANG_MS ?? 60_000);

/**
 * Time limit of a test file that starts real processes: several times the duration of the longest
 * one on an idle machine.
 */
export const FILE_TIMEOUT_MS = 900_000;

/**
 * Time limit of a test file that only computes. Such files run at a low priority beside the others
 * (tools/test/lanes.ts), so they may end only after these.
 */
export const COMPUTING_TIMEOUT_MS = 4_800_000;
