/**
 * What follows from the declarations in `document-nouns.ts`: the list of the nouns, in the
 * alphabetical order of their names, the kinds of their events, and all contracts of the API.
 */
import type { Contract } from './contract/contract.ts';
import { contractList } from './contracts.ts';
import type { DocumentNoun } from './documents/document-noun.ts';
import * as declared from './documents/document-nouns.ts';
import { fleetEventsWith } from './events.ts';

export const nounList: readonly DocumentNoun[] = Object.values<DocumentNoun>({ ...declared });

/** The kinds of their events. */
export const documentKinds: readonly string[] = nounList.map(({ name }) => name);

/** All contracts of the API: the fixed ones, then those of the nouns. */
export const allContracts: readonly Contract[] = [
  ...contractList.map((one) => (one.name === 'FollowEvents' ? withKinds(one) : one)),
  ...nounList.flatMap(({ contracts, further = {} }) => [...Object.values(contracts), ...Object.values(further)]),
];

function withKinds(follow: Contract): Contract {
  const answer = { ...follow.responses[200], schema: fleetEventsWith(documentKinds) } as Contract['responses'][number];
  return { ...follow, responses: { ...follow.responses, 200: answer } };
}
