/**
 * Reasons that keep this agent out until somebody fixes them: a token or a certificate. Each is
 * logged once, with advice, until a session opens. The agent keeps trying meanwhile. Used by
 * link-driver.ts and legacy-reporter.ts.
 */
import type { Logger } from '../../platform/log.ts';
import { type Endpoint, endpointKey } from './endpoints.ts';
import type { UpgradeRefusal } from './link-socket.ts';

const BY_STATUS: Readonly<Record<number, string>> = {
  401:
    'the instance refuses this agent: its token is missing, wrong, expired or revoked. Create one (cnapi token create NAME --role agent) and ' +
    'write it to the file of --token-file (without that option: DATA/token), mode 600; no restart is needed',
  403: "the instance does not accept this agent's token: it needs the role agent and, if it is for one server, it must be for this one",
  429: 'the instance asks this agent to wait: too many requests or failed authentications come from its address',
};

/** Matches Node's error codes for a certificate that is not accepted. */
const UNTRUSTED = /CERT|SIGNATURE|ISSUER|SELF_SIGNED|CRL|INVALID_CA|PATH_LENGTH/;
const UNTRUSTED_ADVICE =
  "the instance's certificate is not trusted. --ca FILE names the CA to trust, --tls-name NAME the name that it must contain; " +
  "or it has expired, or this machine's clock is wrong; the field why says which";
const NO_TLS_ADVICE = 'the other side does not speak TLS as this agent does; is https:// (or --tls) right?';

/** Undefined when nothing needs to be fixed at this agent. */
export function adviceOn({ status, code = '' }: { status: number; code?: string | undefined }): string | undefined {
  if (UNTRUSTED.test(code)) return UNTRUSTED_ADVICE;
  if (code === 'EPROTO' || code.startsWith('ERR_SSL')) return NO_TLS_ADVICE;
  return BY_STATUS[status];
}

export class Refusals {
  readonly #deps: { log: Logger; serverUuid: string };
  readonly #logged = new Set<string>();

  constructor(deps: { log: Logger; serverUuid: string }) {
    this.#deps = deps;
  }

  log(refusal: UpgradeRefusal | undefined, endpoint: Endpoint, reason: string): void {
    const advice = refusal && adviceOn(refusal);
    if (advice === undefined || this.#logged.has(advice)) return;
    this.#logged.add(advice);
    this.#deps.log.warn({ server_uuid: this.#deps.serverUuid, instance: endpointKey(endpoint), reason }, advice);
  }

  /** A session is open; later refusals are logged again. */
  forget(): void {
    this.#logged.clear();
  }
}
