/**
 * The recovery configurations of a server: one is active, and the next one may be staged. Pure;
 * `recovery-keeper.ts` stores them.
 *
 *     none ── stage ──► staged ── activate ──► active ── stage of another one ──► replacing
 *                        ▲  │ stage                ▲                                │  │ stage
 *                        └──┘                      └─────────── activate ───────────┘ ◄┘
 *
 * A repeated stage or activate changes nothing more, because a task may be delivered twice.
 */
export interface RecoveryConfig {
  uuid: string;
  /** The digest of the template, from which the uuid follows. */
  digest: string;
  template: string;
  token: string;
  pivtoken: string;
}

export type RecoveryState =
  | { name: 'none' }
  | { name: 'staged'; staged: RecoveryConfig }
  | { name: 'active'; active: RecoveryConfig }
  | { name: 'replacing'; active: RecoveryConfig; staged: RecoveryConfig };

export type RecoveryEvent = { type: 'stage'; config: RecoveryConfig } | { type: 'activate'; uuid: string };

export type RecoverySlot = 'active' | 'staged';

type RecoveryEffect =
  | { do: 'write'; slot: RecoverySlot; config: RecoveryConfig }
  | { do: 'remove'; slot: RecoverySlot };

export type RecoveryRefusal = 'already active' | 'not staged';

type Step = { state: RecoveryState; effects: RecoveryEffect[] } | { refusal: RecoveryRefusal };

export function stepRecovery(state: RecoveryState, event: RecoveryEvent): Step {
  const { active, staged } = slotsOf(state);
  if (event.type === 'stage') {
    const { config } = event;
    if (active?.uuid === config.uuid) return { refusal: 'already active' };
    return { state: stateOf({ active, staged: config }), effects: [{ do: 'write', slot: 'staged', config }] };
  }
  if (active?.uuid === event.uuid) return { state, effects: [] };
  if (staged?.uuid !== event.uuid) return { refusal: 'not staged' };
  return {
    state: { name: 'active', active: staged },
    // In this order: after a crash in between, the configuration is in both places, and counts as
    // active.
    effects: [
      { do: 'write', slot: 'active', config: staged },
      { do: 'remove', slot: 'staged' },
    ],
  };
}

interface RecoverySlots {
  active?: RecoveryConfig | undefined;
  staged?: RecoveryConfig | undefined;
}

export function stateOf({ active, staged }: RecoverySlots): RecoveryState {
  if (staged === undefined || staged.uuid === active?.uuid)
    return active === undefined ? { name: 'none' } : { name: 'active', active };
  return active === undefined ? { name: 'staged', staged } : { name: 'replacing', active, staged };
}

export function slotsOf(state: RecoveryState): RecoverySlots {
  switch (state.name) {
    case 'none':
      return {};
    case 'staged':
      return { staged: state.staged };
    case 'active':
      return { active: state.active };
    case 'replacing':
      return { active: state.active, staged: state.staged };
  }
}
