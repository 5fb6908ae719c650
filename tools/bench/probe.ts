/** Preloaded (`--expose-gc --import`) into the instances that are measured. The product knows nothing of it. */
import { answerQuestions } from './asked.ts';
import { useAnswers } from './use.ts';

answerQuestions(useAnswers);
