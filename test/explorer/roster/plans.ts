/** The roster's worlds, and their deliberate defects. */
import { stepLink } from '../../../lib/agent/link/link-step.ts';
import { decideHello } from '../../../lib/control/roster/status/authority-row.ts';
import { type BrokenWorld, type Plan, planOf } from '../plan.ts';
import { recordLoss } from './model.ts';
import { type Rules, rules } from './rules.ts';
import { type RosterBounds, rosterWorld } from './world.ts';

const coming: RosterBounds = { name: 'one agent connects', agents: 1, faults: { slowPoll: 1, lostAnswer: 1 } };
const cut: RosterBounds = { name: 'a connection is cut', agents: 1, faults: { cut: 1, slowPoll: 1 } };
const lost: RosterBounds = { name: 'a status change is sent twice', agents: 1, faults: { cut: 1, lostAnswer: 1 } };
const moving: RosterBounds = { name: 'an agent moves', agents: 1, faults: { goaway: 2 }, staysRunning: true };
const polling: RosterBounds = { name: 'polls are slow', agents: 1, faults: { slowPoll: 1 }, staysRunning: true };
const late: RosterBounds = { name: 'an agent moves, late', agents: 1, faults: { goaway: 2, late: 1 } };
const crash: RosterBounds = { name: 'an instance dies', agents: 1, faults: { crashInstance: 1, slowPoll: 1 } };
const freeze: RosterBounds = { name: 'an instance is frozen', agents: 1, faults: { freeze: 1 } };
const restart: RosterBounds = { name: 'an agent restarts', agents: 1, faults: { crashAgent: 1, lostAnswer: 1 } };
const journal: RosterBounds = { name: 'a journal is lost', agents: 1, faults: { loseJournal: 1 } };
const rollBack: RosterBounds = {
  name: 'a journal is rolled back',
  agents: 1,
  faults: { rollBackJournal: 1, goaway: 1 },
};
const deaths: RosterBounds = { name: 'agent and instance die', agents: 1, faults: { dieAgent: 1, crashInstance: 1 } };
const clones: RosterBounds = { name: 'two agents of one uuid', agents: 2, faults: {} };

const MAX_STATES = 100_000;
const MAX_DEEP_STATES = 3_000_000;

export const rosterPlans: Plan[] = [
  coming,
  cut,
  lost,
  polling,
  moving,
  late,
  crash,
  freeze,
  restart,
  journal,
  rollBack,
  deaths,
  clones,
].map((bounds) => planOf(rosterWorld(bounds), MAX_STATES));

export const deepRosterPlans: Plan[] = [
  { name: 'a cut, a slow poll, a lost answer', agents: 1, faults: { cut: 1, slowPoll: 1, lostAnswer: 1 } },
  { name: 'two connections are cut', agents: 1, faults: { cut: 2 } },
  { name: 'a cut, and an instance dies', agents: 1, faults: { cut: 1, crashInstance: 1 } },
  { name: 'an instance is frozen, an answer is lost', agents: 1, faults: { freeze: 1, lostAnswer: 1 } },
  { name: 'a journal is lost, a connection cut', agents: 1, faults: { loseJournal: 1, cut: 1 } },
].map((bounds) => planOf(rosterWorld(bounds), MAX_DEEP_STATES));

const withRules = (bounds: RosterBounds, broken: Partial<Rules>) => rosterWorld(bounds, { ...rules, ...broken });

export const brokenRosters: BrokenWorld[] = [
  {
    defect: 'a status change is guarded by the run only, not by the epoch',
    run: () =>
      planOf(
        withRules(lost, { recordLoss: (row, loss) => recordLoss(row, { ...loss, epoch: row?.epoch ?? loss.epoch }) }),
        MAX_STATES,
      ).explore(),
    complaint: /^I1/,
  },
  {
    defect: 'a row counts as ownerless while the answer to its accept is in transit',
    run: () =>
      planOf(
        withRules(coming, {
          isOwnerless: (instance, row) => rules.isOwnerless({ ...instance, pendings: [] }, row),
        }),
        MAX_STATES,
      ).explore(),
    complaint: /^I1/,
  },
  {
    defect: 'the answer to a poll from before a session is compared with that session',
    run: () => planOf(withRules(polling, { ignoresRegistration: true }), MAX_STATES).explore(),
    complaint: /^I1/,
  },
  {
    defect: 'an accept does not raise the epoch',
    run: () =>
      planOf(
        withRules(coming, {
          accept: (row, run, hello, replaces) => {
            const accepted = rules.accept(row, run, hello, replaces);
            return accepted && row ? { ...accepted, row: { ...accepted.row, epoch: row.epoch } } : accepted;
          },
        }),
        MAX_STATES,
      ).explore(),
    complaint: /^I2/,
  },
  {
    defect: 'an agent that received a goaway closes its session before it has another one',
    run: () =>
      planOf(
        withRules(moving, {
          step: (link, event, circumstances) =>
            event.type === 'goaway' && link.session?.socketId === event.socketId
              ? stepLink(link, { type: 'departure', socketId: event.socketId }, circumstances)
              : stepLink(link, event, circumstances),
        }),
        MAX_STATES,
      ).explore(),
    complaint: /^I1/,
  },
  {
    defect: 'an agent starts a session before its epoch is on the disk',
    run: () =>
      planOf(
        withRules(coming, {
          step: (link, event, circumstances) => {
            const first = stepLink(link, event, circumstances);
            if (event.type !== 'welcomed' || first.state.phase !== 'journalling') return first;
            return stepLink(first.state, { type: 'journalled', socketId: event.socketId }, circumstances);
          },
        }),
        MAX_STATES,
      ).explore(),
    complaint: /before it was on its disk/,
  },
  {
    defect: 'an old journal is refused without a code that says what to do',
    run: () =>
      planOf(
        withRules(rollBack, {
          decideHello: (standing, hello, replaces) => {
            const decision = decideHello(standing, hello, replaces);
            if (decision.kind !== 'refuse' || decision.refusal.code !== 'stale-journal') return decision;
            return { kind: 'refuse', refusal: { ...decision.refusal, code: 'protocol' } };
          },
        }),
        MAX_STATES,
      ).explore(),
    complaint: /no end can be reached/,
  },
  {
    defect: 'a session whose row belongs to another one is kept',
    run: () => planOf(withRules(freeze, { closesDisowned: false }), MAX_STATES).explore(),
    complaint: /no end can be reached/,
  },
];
