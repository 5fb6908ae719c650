import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { parseConfig } from '../../lib/config.ts';

const root = path.resolve(import.meta.dirname, '../..');
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');

/** The part of mustache that config-agent's templates here use: sections, inverted sections, unescaped values. */
function render(template: string, view: Record<string, string>): string {
  return template
    .replace(/\{\{#([\w.]+)\}\}\n?([\s\S]*?)\{\{\/\1\}\}\n?/g, (_, key, body) => (view[key] ? body : ''))
    .replace(/\{\{\^([\w.]+)\}\}([\s\S]*?)\{\{\/\1\}\}/g, (_, key, body) => (view[key] ? '' : body))
    .replace(/\{\{\{([\w.]+)\}\}\}/g, (_, key) => view[key] ?? '');
}

/** Complaints about the nesting of elements and the quoting of attributes. */
function malformations(xml: string): string[] {
  const text = xml.replace(/<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<!DOCTYPE[^>]*>/g, '');
  const open: string[] = [];
  const wrong: string[] = [];
  for (const [tag, slash, name, attributes, empty] of text.matchAll(
    /<(\/?)([\w:.-]+)((?:[^"'<>]|"[^"]*"|'[^']*')*?)(\/?)>/g,
  )) {
    if (!/^(\s+[\w:.-]+=("[^"<]*"|'[^'<]*'))*\s*$/.test(attributes ?? '')) wrong.push(`attributes of ${tag}`);
    if (slash) {
      if (open.pop() !== name) wrong.push(`unexpected ${tag}`);
    } else if (!empty) open.push(name ?? '');
  }
  return [...wrong, ...open.map((name) => `${name} is not closed`)];
}

/** After which an instance has left by itself, whatever waits for it (docs/operating.md, "A drain"). */
const longestDrainSeconds = 75;

const metadata = {
  'auto.ZONENAME': '6f2a1d9e-3a6c-4f0e-9b53-0a4c3a1d2e11',
  CNAPI_DATABASE_URL: 'postgres://cnapi:secret@10.0.0.5/cnapi',
  datacenter_name: 'us-east-1',
  dns_domain: 'example.com',
};

t.test('the SAPI template renders to a configuration that an instance accepts', async (t) => {
  const template = read('sapi_manifests/cnapi/template');
  const least = parseConfig(JSON.parse(render(template, metadata)));
  t.match(least, { cnapiUuid: metadata['auto.ZONENAME'], host: '127.0.0.1', port: 8080, datacenter: 'us-east-1' });
  t.equal(least.redisUrl, undefined);
  const all = { CNAPI_HOST: '127.0.0.2', CNAPI_PORT: '80', CNAPI_REDIS_URL: 'redis://r', CNAPI_LOG_LEVEL: 'debug' };
  const most = parseConfig(JSON.parse(render(template, { ...metadata, ...all, CNAPI_ADVERTISE_HOST: '10.0.0.9' })));
  t.match(most, { host: '127.0.0.2', port: 80, redisUrl: 'redis://r', logLevel: 'debug', advertiseHost: '10.0.0.9' });
});

t.test(
  'the SAPI manifest names its service, the file that the SMF service reads, and what to do after a change',
  async (t) => {
    const manifest = JSON.parse(read('sapi_manifests/cnapi/manifest.json'));
    t.match(manifest, { name: 'cnapi', post_cmd: /svcadm restart cnapi/ });
    t.ok(read('smf/manifests/cnapi.xml').includes(`value="${manifest.path}"`));
  },
);

t.test('the SMF manifests are well-formed, start programs that exist, and give stopping its time', async (t) => {
  for (const name of readdirSync(path.join(root, 'smf/manifests'))) {
    const xml = read(`smf/manifests/${name}`);
    t.strictSame(malformations(xml), [], name);
    const program = /\/opt\/smartdc\/cnapi\/(\S+\.ts)/.exec(xml)?.[1] ?? '';
    t.ok(existsSync(path.join(root, program)), program);
    t.ok(Number(/name="stop" timeout_seconds="(\d+)"/.exec(xml)?.[1]) >= longestDrainSeconds, name);
    t.match(xml, 'exec=":kill"', 'stopping sends SIGTERM, as SMF has it by itself');
    t.match(xml, 'name="duration" type="astring" value="child"', 'it is started again however it ends');
  }
  t.not(malformations('<a><b></a>').length, 0, 'the check itself can fail');
  t.not(malformations('<a b=c/>').length, 0);
});

t.test('the systemd units start programs that exist, and give stopping its time', async (t) => {
  for (const name of readdirSync(path.join(root, 'deploy/systemd'))) {
    const unit = read(`deploy/systemd/${name}`);
    const program = /\/opt\/cnapi\/(\S+\.ts)/.exec(unit)?.[1] ?? '';
    t.ok(existsSync(path.join(root, program)), program);
    t.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1]) >= longestDrainSeconds, name);
    t.match(unit, /^Restart=always$/m, 'it is started again however it ends, also after a drain over REST');
    t.match(unit, /^StartLimitIntervalSec=0$/m, 'and never given up');
    t.match(/^KillSignal=(\w+)$/m.exec(unit)?.[1] ?? 'SIGTERM', 'SIGTERM', 'which is what systemd sends by itself');
  }
});
