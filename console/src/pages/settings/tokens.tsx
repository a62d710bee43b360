import { useState } from "preact/hooks";

import { Button } from "../../parts/button.tsx";
import { Moment } from "../../parts/moments.tsx";
import { PopoverButton } from "../../parts/popover.tsx";
import { CopyButton, Disconnected } from "../../parts/states.tsx";
import { call } from "../../wire/client.ts";
import { attach, connection, hasScope } from "../../wire/connection.ts";
import { asWireError } from "../../wire/error.ts";
import { Setting } from "./row.tsx";

function expiryOf(token: string): number | null {
  try {
    const claims = JSON.parse(atob((token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/"))) as { exp?: unknown };
    return typeof claims.exp === "number" ? claims.exp * 1000 : null;
  } catch {
    return null;
  }
}

/** The token in use, and how to change it for a new one. */
export function Tokens() {
  const to = connection.value;
  const [made, reveal] = useState("");
  const [problem, tell] = useState("");
  if (!to) return <Disconnected />;
  const rotate = async () => {
    tell("");
    try {
      const answer = await call("auth.rotate_token", {});
      attach({ ...to, token: answer.new_token });
      reveal(answer.new_token);
    } catch (error) {
      const why = asWireError(error);
      tell(`Not changed: ${why.code}, ${why.message}`);
    }
  };
  const until = expiryOf(to.token);
  return (
    <>
      <Setting name="Token in use" note={`For ${to.user} of ${to.tenant}; scopes: ${to.scopes.join(", ") || "none"}`}>
        <span class="soft">{until ? <>valid until <Moment at={until} /></> : "its end is not told"}</span>
      </Setting>
      <Setting name="New token" note={problem || "Signs a new token for you; the one in use stays valid until its end"}>
        {hasScope("admin") ? (
          <PopoverButton text="Rotate…" says="Rotate the token">
            {(close) => (
              <div class="confirm">
                <p>This browser uses the new token at once. It is shown once, here.</p>
                <Button
                  kind="primary"
                  onClick={() => {
                    close();
                    void rotate();
                  }}
                >
                  Rotate the token
                </Button>
              </div>
            )}
          </PopoverButton>
        ) : (
          <Button why="A new token needs the scope admin">Rotate…</Button>
        )}
      </Setting>
      {made && (
        <div class="revealed" role="status">
          <code>{made}</code>
          <CopyButton text={made}>Copy</CopyButton>
          <Button kind="quiet" onClick={() => reveal("")}>
            Hide
          </Button>
        </div>
      )}
    </>
  );
}
