/** What instances tell each other about noderoles. */

/** Some may be due: `{}`. For the instance that holds the annealer's duty. */
export const ANNEALER_TOPIC = 'annealer';
