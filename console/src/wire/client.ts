import { attachToDevelopment, connection, isDevelopment, type Connection } from "./connection.ts";
import { WireError, asWireError, refusalOf } from "./error.ts";
import { PATHS, type Methods } from "./types.ts";

export type Method = keyof Methods;
export type Body<M extends Method> = Omit<Methods[M]["request"], "identity">;
export type Answer<M extends Method> = Methods[M]["answer"];

export interface CallOptions {
  /** Another session than the one in view. */
  session?: string;
  signal?: AbortSignal;
}

/** The controls that are sent to a run, by the method that sends each. */
export type Control =
  | "cancel"
  | "pause"
  | "resume"
  | "redirect"
  | "inject_context"
  | "approve"
  | "reject"
  | "prioritize"
  | "user_message";

/**
 * Ask the runtime. Every call of the console goes this way.
 *
 * Throws a WireError with the server's code, message and status; `not_connected` when no runtime is attached.
 */
export async function call<M extends Method>(method: M, body: Body<M>, options: CallOptions = {}): Promise<Answer<M>> {
  const to = attached();
  const session = options.session ?? to.session;
  const identity = session ? { tenant: to.tenant, user: to.user, session } : {};
  return post(method, { identity, ...body }, session, options.signal);
}

/** Send a control to a run. What becomes of it is told by events: an answer only says that it was sent. */
export async function control(
  run: string,
  verb: Control,
  payload: Record<string, unknown> = {},
  options: CallOptions & { eventId?: string } = {},
): Promise<Answer<Control>> {
  const to = attached();
  const isAdmin = to.scopes.includes("admin");
  // Only a change of priority needs more than the owner may; a wider claim than needed is not made.
  const scope = verb === "prioritize" && isAdmin ? "admin" : "owner_user";
  const body = { identity: { run, scope }, payload, ...(options.eventId ? { event_id: options.eventId } : {}) };
  return post(verb, body as never, options.session ?? to.session, options.signal);
}

function attached(): Connection {
  const to = connection.value;
  if (!to) throw new WireError("not_connected", "no runtime is attached", 0);
  return to;
}

/** The headers that say who asks. A blank session is sent too: it means the token's own. */
export function headersOf(to: Connection, session: string): Record<string, string> {
  return {
    Authorization: `Bearer ${to.token}`,
    "X-Harbor-Tenant": to.tenant,
    "X-Harbor-User": to.user,
    "X-Harbor-Session": session,
  };
}

async function post<M extends Method>(
  method: M,
  body: object,
  session: string,
  signal: AbortSignal | undefined,
  isRetry = false,
): Promise<Answer<M>> {
  const to = attached();
  let answer: Response;
  try {
    answer = await fetch(to.baseUrl + PATHS[method], {
      method: "POST",
      credentials: "omit",
      headers: { "Content-Type": "application/json", ...headersOf(to, session) },
      body: JSON.stringify(body),
      signal: signal ?? null,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw asWireError(error);
  }
  const text = await answer.text();
  if (answer.ok) return (text ? JSON.parse(text) : {}) as Answer<M>;
  const refused = refusalOf(answer.status, text);
  if (isDevelopment && !isRetry && (await renewed(refused, to))) return post(method, body, session, signal, true);
  throw refused;
}

let renewing: Promise<Connection> | null = null;

/** A development server signs with a new key after each start: its own page takes a new token and goes on. */
async function renewed(refused: WireError, used: Connection): Promise<boolean> {
  if (refused.code !== "auth_rejected" || used.baseUrl !== location.origin) return false;
  if (connection.value?.token !== used.token) return true;
  renewing ??= attachToDevelopment().finally(() => {
    renewing = null;
  });
  try {
    const made = await renewing;
    if (used.session && used.session !== made.session) connection.value = { ...made, session: used.session };
    return true;
  } catch {
    return false;
  }
}
