/**
 * `cnapi doctor`: reports what is wrong with an instance's configuration and its dependencies,
 * before or after the instance is started.
 */
import { Command } from 'commander';
import type { Finding, Severity } from '../../control/doctor/finding.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context, GlobalOptions } from '../invocation/context.ts';
import { localConfigFile } from '../invocation/local-config.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import type { Color } from '../terminal/output.ts';

export function doctorCommand(runner: CommandRunner): Command {
  const command = new Command('doctor')
    .description(
      "Checks an instance's configuration and, from this machine, the database, the bus, DNS, the port, clocks, certificates, " +
        'access and limits. Says what to do about each problem and changes nothing. Exit code 1 when something must be fixed.',
    )
    .option(
      '--config <file>',
      "an instance's configuration; the instance's environment variables override it, as for the instance itself (default: that of your npm start, if it runs on this machine)",
    )
    .action(runner.action(doctor));
  return withExamples(command, [
    'cnapi doctor --config /etc/cnapi/a.json',
    'cnapi doctor --config /etc/cnapi/a.json --dns 10.0.0.2:53 --json',
  ]);
}

interface DoctorOptions extends GlobalOptions {
  config?: string;
}

/** Imported only when needed, because it loads half of an instance's code. */
async function doctor(context: Context, _: unknown, options: DoctorOptions): Promise<number> {
  const { clock, random, env, output } = context;
  const { runChecks } = await import('../../control/doctor/doctor.ts');
  const { config, dns, ...rest } = options;
  // The database URL has no default, so the variable shows that the environment has a
  // configuration.
  const configFile = config ?? (env.CNAPI_DATABASE_URL ? undefined : localConfigFile(rest, env));
  const found = await runChecks({ configFile, env, dns, clock, random });
  const failed = found.filter(({ level }) => level === 'fail').length;
  if (output.json) output.document({ ok: failed === 0, findings: found });
  else show(context, found);
  return failed === 0 ? 0 : 1;
}

const COLORS: Record<Severity, Color> = { ok: 'green', warn: 'yellow', fail: 'red' };

function show({ output }: Context, found: readonly Finding[]): void {
  for (const { part, level, found: text, todo } of found) {
    output.raw(`${output.paint(COLORS[level], level.padEnd(4))}  ${part.padEnd(11)}  ${escapeControls(text)}\n`);
    if (todo !== undefined) output.line(`${' '.repeat(19)}${escapeControls(todo)}`);
  }
  const count = (wanted: Severity) => found.filter(({ level }) => level === wanted).length;
  output.note(`${count('ok')} ok, ${count('warn')} to look at, ${count('fail')} to fix`);
}
