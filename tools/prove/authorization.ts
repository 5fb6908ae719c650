/** The token for the instances, found in the same way as by `cnapi`. */
import { parseAddress } from '../../lib/client/address.ts';
import { type Credentials, credentialsOf, tokenFor } from '../../lib/client/credentials.ts';

let credentials: Promise<Credentials> | undefined;

/** Returns the header to send to the instance at `url`. @throws CredentialsError */
export async function authorizationFor(url: string): Promise<Record<string, string>> {
  credentials ??= credentialsOf(process.env);
  const token = await tokenFor(await credentials, parseAddress(new URL(url).origin));
  return token === undefined ? {} : { authorization: `Bearer ${token}` };
}
