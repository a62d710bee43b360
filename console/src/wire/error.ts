/** Why a call was not answered: the code and message of the server, its HTTP status (0: no answer came), and when. */
export class WireError extends Error {
  readonly code: string;
  readonly status: number;
  readonly at: Date;

  constructor(code: string, message: string, status: number) {
    super(message);
    this.name = "WireError";
    this.code = code;
    this.status = status;
    this.at = new Date();
  }

  /** Whether the caller's token lacks a scope for what was asked. */
  get isForbidden(): boolean {
    return this.code === "scope_mismatch" || this.code === "identity_scope_required" || this.status === 403;
  }

  get details(): string {
    return `${this.code}: ${this.message}\nHTTP ${this.status || "none"} at ${this.at.toISOString()}`;
  }
}

/** The error that a refusal's body says; a body that is no JSON is shown as it came. */
export function refusalOf(status: number, body: string): WireError {
  try {
    const said = JSON.parse(body) as { code?: unknown; message?: unknown };
    if (typeof said.code === "string") return new WireError(said.code, String(said.message ?? ""), status);
  } catch {
    // The text itself is the message.
  }
  return new WireError("runtime_error", body.slice(0, 500) || `HTTP ${status}`, status);
}

export function asWireError(error: unknown): WireError {
  if (error instanceof WireError) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new WireError("unreachable", text, 0);
}
