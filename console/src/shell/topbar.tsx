import { Button } from "../parts/button.tsx";
import { Icon } from "../parts/icon.tsx";
import { PopoverButton } from "../parts/popover.tsx";
import { Facts } from "../parts/figures.tsx";
import { connection, detach } from "../wire/connection.ts";
import { written } from "./keys.ts";
import { openPalette } from "./palette-state.ts";
import { navigate } from "./router.ts";
import { heading } from "./title.ts";

export function TopBar({ title }: { title: string }) {
  const named = heading.value ?? { title, crumbs: [] };
  return (
    <header class="topbar">
      <div class="crumbs">
        {named.crumbs.map((crumb) => (
          <span key={crumb.href} class="crumb">
            <a class="cut" href={crumb.href}>
              {crumb.text}
            </a>
            <Icon name="right" small />
          </span>
        ))}
        <h1 class="cut">{named.title}</h1>
      </div>
      <span class="grow" />
      <button type="button" class="search-button hide-phone" onClick={() => openPalette()}>
        <Icon name="search" />
        <span class="cut">Search or run a command</span>
        <kbd aria-hidden="true">{written("mod+k")}</kbd>
      </button>
      <span class="only-phone">
        <Button kind="quiet" icon="search" label="Search" onClick={() => openPalette()} />
      </span>
      <Identity />
    </header>
  );
}

function Identity() {
  const to = connection.value;
  const text = to ? `${to.user} · ${to.tenant}` : "Not connected";
  return (
    <PopoverButton
      kind="quiet"
      icon="user"
      label={to ? `Identity: ${text}${to.session && `, session ${to.session}`}` : text}
      says="Identity"
      text={<span class="hide-phone">{text}</span>}
    >
      {(close) => (
        <div class="identity">
          {to ? (
            <>
              <Facts
                rows={[
                  ["User", to.user],
                  ["Tenant", to.tenant],
                  ["Session", to.session || "the token's own"],
                  ["Scopes", to.scopes.join(", ") || "none"],
                  ["Runtime", to.baseUrl],
                ]}
              />
              <div class="actions">
                <Button
                  small
                  onClick={() => {
                    close();
                    navigate("/settings");
                  }}
                >
                  Connected runtimes
                </Button>
                <Button
                  small
                  kind="quiet"
                  onClick={() => {
                    close();
                    detach();
                    navigate("/settings");
                  }}
                >
                  Detach
                </Button>
              </div>
            </>
          ) : (
            <Button
              kind="primary"
              icon="link"
              onClick={() => {
                close();
                navigate("/settings");
              }}
            >
              Attach a runtime
            </Button>
          )}
        </div>
      )}
    </PopoverButton>
  );
}
