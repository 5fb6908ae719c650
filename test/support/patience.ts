/**
 * How long tests wait before they give up, shared by all of them.
 *
 * Tests run on machines that others use as well: any process may stand still for seconds. So no test asserts a time that only
 * such a stand-still breaks; it would prove nothing about the product. A test proves that something comes to pass, why it did,
 * and that nothing came too early; it gives up when the thing surely hangs, and says in a comment how long it took. That the times
 * themselves hold is shown where time is a parameter (test/roster, on a manual clock) and measured by the bench.
 */

/** What has not come to pass this long after it was due never will. */
export const HANG_MS = 60_000;

/** For whole test files that start real processes: several times what the longest of them takes on an idle machine. */
export const FILE_TIMEOUT_MS = 600_000;
