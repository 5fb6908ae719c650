/** Deliberate defects of the annealer, for `defects.ts`. */
import type { Defect } from './defects.ts';

export const annealerDefects: readonly Defect[] = [
  {
    name: 'a commit makes a noderole due whatever its parents are',
    breaks: 'I11',
    firstSeed: 1,
    kind: 'annealer-',
    find: "when p_parents = 'active' then 'todo' else 'blocked' end\n    when 'parents-changed'",
    put: "else 'todo' end\n    when 'parents-changed'",
  },
  {
    name: 'a run whose data was changed meanwhile makes its noderole active',
    breaks: 'I11',
    firstSeed: 1,
    kind: 'annealer-',
    find: "            when r.outcome = 'succeeded' and n.is_stale then 'stale'\n",
    put: '',
  },
  {
    name: 'a new holder of the annealer knows only the runs that it has begun',
    breaks: 'I11',
    firstSeed: 1,
    kind: 'annealer-',
    find: 'const open = await readOpenRuns(database);',
    put: `const runs = await readOpenRuns(database);
    if (!('former' in duty)) Object.assign(duty, { former: duty.generation > 1 ? runs.map(({ id }) => id) : [] });
    const open = runs.filter(({ id }) => !(duty as { former?: string[] }).former?.includes(id));`,
  },
  {
    name: 'the end of any run of a noderole ends the one that it has at present',
    breaks: 'I11',
    firstSeed: 3,
    kind: 'annealer-',
    find: 'left join cnapi_noderole_runs r on r.id = n.noderole_run\n        cross join',
    put: `left join lateral (
          select * from cnapi_noderole_runs o where o.noderole = n.id and n.state <> 'proposed'
            order by o.ended_at desc nulls last limit 1) r on true
        cross join`,
  },
  {
    name: 'the annealer counts only the runs of one claim',
    breaks: 'I11',
    firstSeed: 1,
    kind: 'annealer-',
    find: 'p_cap - (select count(*)::int from cnapi_noderole_runs r where r.ended_at is null));',
    put: 'p_cap);',
  },
  {
    name: 'a blocked noderole goes on naming a noderole that is tried again',
    breaks: 'I11',
    firstSeed: 3,
    kind: 'annealer-',
    find: "and (s.name <> 'parents-changed' or s.next <> n.state\n            or n.blocked_by is distinct from case when s.next = 'blocked' then s.blocked_by end)",
    put: "and (s.name <> 'parents-changed' or s.next <> n.state)",
  },
];
