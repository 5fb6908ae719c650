/**
 * How Ur installs the agent of its server: the script, what it is told, and what its reply means.
 * The script verifies the package, so a caller or a web server cannot give a server anything that
 * the key of the configuration has not signed. Values go to it as arguments and never into its
 * text. Pure.
 *
 *     script sent ──reply 0: installed and started──▶ the agent is awaited ──its session is seen──▶ complete
 *         ├──reply: the reason──▶ AgentNotInstalled            └──no session within `withinMs`──▶ AgentNotConnected
 *         └──as for each script (ur-posts.ts)
 */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { failure, type PostedEnd } from '../legacy/task-answer.ts';
import type { UrReply } from './execution.ts';
import type { UrAgentSettings } from './settings.ts';
import { parseObject } from './ur.ts';

const OLDEST_NODE = '22.18';
const OWN_PACKAGE = 'cn-agent';
const MAX_REASON_CHARS = 2_000;
const END = 'END_OF_PROGRAM';

/**
 * Ur starts it as a file, so its first line names the shell. @param program for Node
 * (install-agent.mjs)
 */
const scriptOf = (program: string): string => `#!/bin/sh
node=$(command -v -- "$2") || {
  printf 'there is no %s; the agent needs Node ${OLDEST_NODE} or newer\\n' "$2" >&2
  exit 1
}
"$node" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 18) ? 0 : 1)' || {
  printf 'the agent needs Node ${OLDEST_NODE} or newer, and %s is older\\n' "$node" >&2
  exit 1
}
exec "$node" --input-type=module - "$1" <<'${END}'
${program}
${END}
`;

const LOG_SCRIPT = '#!/bin/sh\nexec tail -c 1000 -- "$1/log"\n';

/** What an instance gives the servers. */
export interface AgentToInstall extends Omit<UrAgentSettings, 'key'> {
  /** The text of the public key, PEM. */
  key: string;
  /** The text of `install-agent.mjs`. */
  program: string;
}

/** @returns why these parameters of `agent_install` name no package that can be installed, if so */
export function reasonNotInstallable({ package_name: name, package_file: file }: JsonObject): PostedEnd | undefined {
  if (name !== undefined && name !== OWN_PACKAGE)
    return failure('NeedsAgent', `The server has no agent yet; install ${OWN_PACKAGE} first, and then ${name}`);
  if (typeof file !== 'string' || file === '')
    return failure('PackageNotGiven', 'package_file is missing: where the server finds the package of its agent');
  if (!hasCredentials(file)) return undefined;
  const message = 'package_file holds a user or a password, which logs would show; remove them';
  return failure('PackageSourceNotAllowed', message);
}

function hasCredentials(file: string): boolean {
  const url = URL.parse(file);
  return url !== null && (url.username !== '' || url.password !== '');
}

/** The message for Ur that installs the agent. */
export function buildInstallation(
  serverUuid: string,
  { package_file: source }: JsonObject,
  { key, program, options, directory, node, start }: AgentToInstall,
): JsonObject {
  const order = { source, key, directory, options: { ...options, uuid: serverUuid }, ...(start && { start }) };
  return { type: 'script', script: scriptOf(program), args: [JSON.stringify(order), node] };
}

/** The message for Ur that reads the end of the agent's log. */
export const askForLog = ({ directory }: Pick<AgentToInstall, 'directory'>): JsonObject => ({
  type: 'script',
  script: LOG_SCRIPT,
  args: [directory],
});

/** @returns the version that was installed and started, or the end of the task */
export function installedVersion({ exitStatus, stdout, stderr }: UrReply): { version: string } | PostedEnd {
  if (exitStatus !== 0)
    return failure('AgentNotInstalled', tail(stderr) || `the script ended with status ${exitStatus}`);
  const parsed = parseObject(Buffer.from(stdout));
  const version = 'value' in parsed ? parsed.value.version : undefined;
  return typeof version === 'string' ? { version } : failure('BadAgentAnswer', 'the script did not name the version');
}

export const agentCameUp = (version: string): PostedEnd => ({
  outcome: 'complete',
  result: { version, previous: null, changed: true },
});

export function agentNotConnected({ withinMs, directory }: AgentToInstall, log: UrReply | undefined): PostedEnd {
  const end = log === undefined || tail(log.stdout) === '' ? '' : `. Its log ends with: ${tail(log.stdout)}`;
  const message = `the agent was installed and started, and did not connect within ${withinMs} ms; see ${directory}/log`;
  return failure('AgentNotConnected', message + end);
}

export const notConfigured: PostedEnd = failure(
  'NeedsAgent',
  'The server has no agent yet, and this instance cannot install one: its configuration has no urAgent',
);

const tail = (text: string): string => text.trim().slice(-MAX_REASON_CHARS);
