import { computed, signal } from "@preact/signals";

import { asWireError, refusalOf } from "./error.ts";

/** Which runtime this browser talks to, and as whom. `session` may be blank: then the token's own counts. */
export interface Connection {
  baseUrl: string;
  token: string;
  tenant: string;
  user: string;
  session: string;
  scopes: string[];
}

const PREFIX = "harbor.runtime.";
const BOOTSTRAP = "/v1/dev/bootstrap.json";

export const connection = signal<Connection | null>(stored());
export const isConnected = computed(() => connection.value !== null);

/** Whether this page's own server says that it gives out a token to pages on this machine. */
export const isDevelopment = globalThis.document?.documentElement.dataset.attach === "dev";

/** Whether the token claims one of these scopes. It only hides or disables controls: the server decides. */
export function hasScope(...scopes: string[]): boolean {
  return connection.value?.scopes.some((one) => scopes.includes(one)) ?? false;
}

/** Whether the viewer may see every session of the tenant. */
export const seesFleet = computed(() => hasScope("admin", "console:fleet"));

function stored(): Connection | null {
  const read = (key: string) => globalThis.localStorage?.getItem(PREFIX + key) ?? "";
  const made: Connection = {
    baseUrl: withoutSlash(read("base_url")),
    token: read("token"),
    tenant: read("tenant"),
    user: read("user"),
    session: read("session"),
    scopes: scopesOf(read("scopes")),
  };
  return made.baseUrl && made.token && made.tenant && made.user ? made : null;
}

export function scopesOf(list: string): string[] {
  return list
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, "");
}

export function attach(made: Connection): void {
  const kept = { ...made, baseUrl: withoutSlash(made.baseUrl) };
  localStorage.setItem(`${PREFIX}base_url`, kept.baseUrl);
  localStorage.setItem(`${PREFIX}token`, kept.token);
  localStorage.setItem(`${PREFIX}tenant`, kept.tenant);
  localStorage.setItem(`${PREFIX}user`, kept.user);
  localStorage.setItem(`${PREFIX}session`, kept.session);
  localStorage.setItem(`${PREFIX}scopes`, kept.scopes.join(","));
  localStorage.removeItem("harborage.detached");
  connection.value = kept;
}

/** Forget the runtime. A page of a development server does not attach by itself again until it is asked to. */
export function detach(): void {
  for (const key of ["base_url", "token", "tenant", "user", "session", "scopes"]) localStorage.removeItem(PREFIX + key);
  localStorage.setItem("harborage.detached", "1");
  connection.value = null;
}

export function isDetached(): boolean {
  return localStorage.getItem("harborage.detached") === "1";
}

/** Look at another session with the same token. */
export function useSession(session: string): void {
  const now = connection.value;
  if (now && now.session !== session) attach({ ...now, session });
}

interface Bootstrap {
  base_url: string;
  token: string;
  identity: { tenant: string; user: string; session: string };
  scopes: string[];
}

/**
 * Attach to the development server that this page came from.
 *
 * Throws a WireError: 403 and 404 mean that it gives no tokens away, so the form is what is left.
 */
export async function attachToDevelopment(): Promise<Connection> {
  let answer: Response;
  try {
    answer = await fetch(BOOTSTRAP, { method: "POST", credentials: "omit" });
  } catch (error) {
    throw asWireError(error);
  }
  const body = await answer.text();
  if (!answer.ok) throw refusalOf(answer.status, body);
  const said = JSON.parse(body) as Bootstrap;
  const made: Connection = { baseUrl: said.base_url, token: said.token, ...said.identity, scopes: said.scopes };
  attach(made);
  return made;
}

/** Why a text cannot be a runtime's token; "" when it can. */
export function tokenProblem(token: string): string {
  if (!token) return "A token is needed";
  if (!/^[\w-]+\.[\w-]+\.[\w-]+$/.test(token)) return "A token has three parts with dots between them";
  return token.length < 200 ? "This token is too short to be one of a runtime" : "";
}
