/**
 * Preloaded (`--expose-gc --import`) into the instances that are measured; the product does not
 * depend on it.
 */
import { answerQuestions } from './asked.ts';
import { useAnswers } from './use.ts';

answerQuestions(useAnswers);
