import { useState } from "preact/hooks";

import { Button } from "../../parts/button.tsx";
import { Facts } from "../../parts/figures.tsx";
import { Field } from "../../parts/field.tsx";
import { Notice } from "../../parts/states.tsx";
import { navigate } from "../../shell/router.ts";
import { call } from "../../wire/client.ts";
import { attach, attachToDevelopment, connection, detach, tokenProblem, type Connection } from "../../wire/connection.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import { runtime } from "../../wire/runtime.ts";
import { Setting } from "./row.tsx";
import { keptRuntimes, keepRuntime, dropRuntime } from "./kept-runtimes.ts";

/** The runtime that this browser is attached to, those that it knows, and how to attach to another. */
export function Runtimes() {
  const to = connection.value;
  const [isAdding, add] = useState(false);
  return (
    <>
      {to ? (
        <>
          <Setting name={runtime.value?.display_name || to.baseUrl} note={`${to.user} of ${to.tenant}${to.session && `, session ${to.session}`}`}>
            <Button onClick={detach}>Detach</Button>
          </Setting>
          <div class="settings-facts">
            <Facts
              rows={[
                ["Address", to.baseUrl],
                ["Scopes", to.scopes.join(", ") || "none"],
                ["Protocol", runtime.value?.protocol_version],
                ["Build", runtime.value?.build_version],
              ]}
            />
          </div>
        </>
      ) : (
        <Notice icon="unplugged" title="Not connected to a runtime">
          Start one with <code>harborage dev</code>, or attach to one that runs.
        </Notice>
      )}
      <LocalAttach />
      {keptRuntimes.value
        .filter((one) => one.baseUrl !== to?.baseUrl || one.user !== to.user || one.tenant !== to.tenant)
        .map((one) => (
          <Setting key={`${one.baseUrl} ${one.tenant} ${one.user}`} name={one.name || one.baseUrl} note={`${one.baseUrl} · ${one.user} of ${one.tenant}`}>
            <Button kind="quiet" onClick={() => dropRuntime(one)}>
              Remove
            </Button>
            <Button onClick={() => add(true)}>Attach with a token</Button>
          </Setting>
        ))}
      {isAdding || !to ? (
        <AttachForm onDone={() => add(false)} />
      ) : (
        <Setting name="Another runtime" note="With its address and a token that its operator gave you">
          <Button icon="plus" onClick={() => add(true)}>
            Add
          </Button>
        </Setting>
      )}
    </>
  );
}

/** Attach to the development server that this page came from: no token has to be pasted. */
function LocalAttach() {
  const [error, fail] = useState<WireError | null>(null);
  const to = connection.value;
  if (to?.baseUrl === location.origin) return null;
  const attachHere = () => {
    fail(null);
    attachToDevelopment().then(
      () => navigate("/overview"),
      (why: unknown) => fail(asWireError(why)),
    );
  };
  const note = !error
    ? "A development server on this machine gives its own page a token"
    : error.status === 403 || error.status === 404
      ? `${location.host} gives no token away (${error.code}): use the form`
      : `${error.code}: ${error.message}`;
  return (
    <Setting name="Local runtime" note={<span class={error ? "is-failed" : undefined}>{note}</span>}>
      <Button kind={to ? "plain" : "primary"} icon="link" onClick={attachHere}>
        Attach to local
      </Button>
    </Setting>
  );
}

const EMPTY = { name: "", baseUrl: "", token: "", tenant: "", user: "", session: "" };

function problemsOf(form: typeof EMPTY): Partial<typeof EMPTY> {
  const problems: Partial<typeof EMPTY> = {};
  if (!/^https?:\/\/[^/\s]+/.test(form.baseUrl)) problems.baseUrl = "An address such as https://runtime.example";
  const token = tokenProblem(form.token.trim());
  if (token) problems.token = token;
  if (!form.tenant.trim()) problems.tenant = "A tenant is needed";
  if (!form.user.trim()) problems.user = "A user is needed";
  return problems;
}

/** The scopes that a token claims. They only hide controls here; the server reads the token itself. */
function claimedScopes(token: string): string[] {
  try {
    const part = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    const claims = JSON.parse(atob(part)) as { scopes?: unknown };
    return Array.isArray(claims.scopes) ? claims.scopes.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}

function AttachForm({ onDone }: { onDone: () => void }) {
  const [form, write] = useState({ ...EMPTY, baseUrl: location.origin });
  const [isTold, tell] = useState(false);
  const [error, fail] = useState<WireError | null>(null);
  const problems = problemsOf(form);
  const set = (key: keyof typeof EMPTY) => (event: { currentTarget: HTMLInputElement }) => write({ ...form, [key]: event.currentTarget.value });
  const submit = async () => {
    tell(true);
    fail(null);
    if (Object.keys(problems).length) return;
    const token = form.token.trim();
    const before = connection.value;
    const made: Connection = {
      baseUrl: form.baseUrl.trim(),
      token,
      tenant: form.tenant.trim(),
      user: form.user.trim(),
      session: form.session.trim(),
      scopes: claimedScopes(token),
    };
    attach(made);
    try {
      await call("runtime.info", {});
    } catch (why) {
      if (before) attach(before);
      else detach();
      return fail(asWireError(why));
    }
    keepRuntime({ name: form.name.trim(), baseUrl: made.baseUrl, tenant: made.tenant, user: made.user });
    onDone();
    navigate("/overview");
  };
  const input = (key: keyof typeof EMPTY, label: string, hint?: string, type: "text" | "password" = "text") => (
    <Field label={label} hint={hint} problem={isTold ? problems[key] : undefined}>
      {(parts) => {
        const filled = { class: "input", autocomplete: "off", spellcheck: false, value: form[key], onInput: set(key), ...parts } as const;
        return type === "password" ? <input {...filled} type="password" /> : <input {...filled} type="text" />;
      }}
    </Field>
  );
  return (
    <form
      class="attach-form"
      aria-label="Attach a runtime"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {input("name", "Name", "For your own list; may be blank")}
      {input("baseUrl", "Address")}
      {input("token", "Token", "Kept in this browser until you detach", "password")}
      {input("tenant", "Tenant")}
      {input("user", "User")}
      {input("session", "Session", "May be blank: then the token's own")}
      {error && (
        <p class="is-failed" role="alert">
          <code>{error.code}</code>: {error.message}
        </p>
      )}
      <div>
        <Button kind="primary" type="submit" icon="link">
          Attach
        </Button>
      </div>
    </form>
  );
}
