import t from 'tap';
import { databaseText, hostUrls } from '../../../lib/platform/postgres/database-url.ts';

const right: { name: string; url: string; urls: string[] }[] = [
  { name: 'one host is unchanged', url: 'postgres://u:p@h/db', urls: ['postgres://u:p@h/db'] },
  { name: 'a socket is unchanged', url: 'postgres:///db?host=/tmp', urls: ['postgres:///db?host=/tmp'] },
  {
    name: 'several hosts become one URL each, with the common parts',
    url: 'postgresql://u:p%40@h1:5433,h2/db?target_session_attrs=read-write&sslmode=disable',
    urls: ['h1:5433', 'h2'].map(
      (host) => `postgresql://u:p%40@${host}/db?target_session_attrs=read-write&sslmode=disable`,
    ),
  },
  {
    name: 'addresses of IP version 6',
    url: 'postgres://[::1]:1,[fe80::2]/',
    urls: ['postgres://[::1]:1/', 'postgres://[fe80::2]/'],
  },
  {
    name: 'a comma may be in a password',
    url: 'postgres://u:a,b@h1,h2',
    urls: ['postgres://u:a,b@h1', 'postgres://u:a,b@h2'],
  },
];
for (const { name, url, urls } of right) t.test(name, async (t) => t.same(hostUrls(url), urls));

const texts: [url: string, text: string][] = [
  ['postgres://u:secret@h/db', 'db at h:5432'],
  ['postgres://u:secret@h1:5433,[::1]/a%20b?sslmode=disable', 'a b at h1:5433,[::1]:5432'],
  ['postgres://u:secret@h', "its user's database at h:5432"],
  ['postgres:///db?host=/tmp&user=u&password=secret', 'db at /tmp:5432'],
  ['postgres://u:secret@/db?host=/tmp', 'db at /tmp:5432'],
  ['postgres:///db', 'db at localhost:5432'],
];
for (const [url, text] of texts)
  t.test(`in messages a database is ${text}`, async (t) => t.equal(databaseText(url), text));

const wrong: { name: string; url: string; message: RegExp }[] = [
  { name: 'another scheme', url: 'mysql://h1,h2/db', message: /postgres:/ },
  { name: 'a port without a host', url: 'postgres://u:secret@:5432/db', message: /HOST:PORT; correct it/ },
  { name: 'a port that is not a number', url: 'postgres://u:secret@h:a/db', message: /HOST:PORT; correct it/ },
  { name: 'a port above 65535', url: 'postgres://u:secret@h:70000/db', message: /HOST:PORT; correct it/ },
  { name: 'a / in the password', url: 'postgres://u:secret/x@h/db', message: /password write \/ as %2F/ },
  { name: 'a ? in the password', url: 'postgres://u:secret?x@h/db', message: /\? as %3F/ },
  { name: 'a # in the password', url: 'postgres://u:secret#x@h/db', message: /# as %23/ },
  { name: 'a % in the password', url: 'postgres://u:secret%x@h/db', message: /% as %25/ },
  { name: 'an empty host', url: 'postgres://u:secret@h1,,h2/db', message: /HOST/ },
  { name: 'an invalid port', url: 'postgres://u:secret@h1:,h2:a/db', message: /HOST:PORT/ },
  {
    name: 'a host for read-only use',
    url: 'postgres://u:secret@h1/db?target_session_attrs=standby',
    message: /standby.*read-write/,
  },
];
for (const { name, url, message } of wrong) {
  t.test(`${name} is refused without the URL`, async (t) => {
    t.throws(() => hostUrls(url), { message });
    t.throws(() => hostUrls(url), { message: /^(?!.*secret)/ });
  });
}
