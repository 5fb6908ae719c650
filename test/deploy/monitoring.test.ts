/**
 * Checks the dashboard and the alert rules against the metrics of an instance and against the
 * runbooks.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { freshZone } from '../support/apps.ts';
import { Authority, askOverTls } from '../support/certificates.ts';

const file = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');
const dashboard = JSON.parse(file('deploy/grafana/cnapi.json')) as {
  panels: { title: string; type: string; targets?: { expr: string }[] }[];
  templating: { list: { query: string }[] };
};
const alerts = file('deploy/prometheus/cnapi-alerts.yml');
const rules = alerts.split('      - alert: ').slice(1);
const field = (rule: string, name: string) => new RegExp(`^ +${name}: (.*)$`, 'm').exec(rule)?.[1] ?? '';

const metricsIn = (text: string) => [...text.matchAll(/\b(?:cnapi|process|nodejs)_[a-z0-9_]+/g)].map(([name]) => name);

t.test('each metric in the dashboard and the alerts is served', async (t) => {
  const authority = await Authority.create(t);
  const { certFile, keyFile } = await authority.issue();
  const zone = await freshZone(t);
  const { url } = await zone.startApp({ tlsCertFile: certFile, tlsKeyFile: keyFile });
  await askOverTls(authority.caFile, `${url}/servers`);
  const { text } = await askOverTls(authority.caFile, `${url}/metrics`);
  const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)];
  const served = new Set(
    types.flatMap(([, name = '', type]) =>
      type === 'histogram' ? ['_bucket', '_sum', '_count'].map((end) => name + end) : [name],
    ),
  );
  const exprs = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const queries = [
    ...exprs,
    ...dashboard.templating.list.map(({ query }) => query),
    ...rules.map((rule) => field(rule, 'expr')),
  ];
  const used = new Set(queries.flatMap(metricsIn));
  t.ok(used.size > 30, 'the queries use most metrics');
  t.same(
    [...used].filter((name) => !served.has(name)),
    [],
  );
  // A selector with a label that no series has would never match.
  for (const [, name = '', selector = ''] of queries.join('\n').matchAll(/\b(cnapi_\w+)\{([^}]*)\}/g))
    for (const [, label = ''] of selector.matchAll(/(\w+)[=!]/g))
      t.ok(
        label === 'job' || new RegExp(`^${name}\\{[^}]*\\b${label}="`, 'm').test(text),
        `${name} has the label ${label}`,
      );
});

t.test('each alert has a severity, a summary and a section in the runbooks', async (t) => {
  const headings = [...file('docs/runbooks.md').matchAll(/^## (.*)$/gm)].map(([, text = '']) =>
    text
      .toLowerCase()
      .replace(/[^a-z0-9 -]/g, '')
      .replaceAll(' ', '-'),
  );
  t.ok(rules.length > 15);
  for (const rule of rules) {
    const [name = ''] = rule.split('\n');
    t.match(name, /^Cnapi[A-Za-z]+$/);
    t.match(field(rule, 'for'), /^\d+[sm]$/, name);
    t.match(field(rule, 'severity'), /^(warning|critical)$/, name);
    t.match(field(rule, 'summary'), /^'[^']{10,}'$/, name);
    const [, anchor = ''] = /^docs\/runbooks\.md#(.*)$/.exec(field(rule, 'runbook')) ?? [];
    t.ok(headings.includes(anchor), `${name}: ${anchor}`);
    t.equal(field(rule, 'expr').split('(').length, field(rule, 'expr').split(')').length, name);
  }
  t.equal(new Set(rules.map((rule) => rule.split('\n')[0])).size, rules.length);
});

t.test('each panel of the dashboard has a query', async (t) => {
  const shown = dashboard.panels.filter(({ type }) => type !== 'row');
  t.ok(shown.length > 10);
  for (const { title, targets = [] } of shown)
    t.ok(targets.length > 0 && targets.every(({ expr }) => expr !== ''), title);
});
