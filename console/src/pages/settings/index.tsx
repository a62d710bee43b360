import "./settings.css";

import { navigate } from "../../shell/router.ts";
import { Select } from "../../parts/field.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { connection } from "../../wire/connection.ts";
import { About } from "./about.tsx";
import { Appearance, Keys, Times } from "./appearance.tsx";
import { Notifications } from "./notifications.tsx";
import { Runtimes } from "./runtimes.tsx";
import { Governance, Models, Runtime, Storage } from "./posture.tsx";
import { Tokens } from "./tokens.tsx";

const SECTIONS = [
  { id: "runtimes", title: "Connected runtimes", of: "This browser", Body: Runtimes },
  { id: "tokens", title: "Sign-in and tokens", of: "This browser", Body: Tokens },
  { id: "notifications", title: "Notifications", of: "This browser", Body: Notifications },
  { id: "appearance", title: "Appearance", of: "This browser", Body: Appearance },
  { id: "times", title: "Time and locale", of: "This browser", Body: Times },
  { id: "keys", title: "Keys", of: "This browser", Body: Keys },
  { id: "runtime", title: "Runtime", of: "This runtime", Body: Runtime },
  { id: "governance", title: "Governance", of: "This runtime", Body: Governance },
  { id: "storage", title: "Storage", of: "This runtime", Body: Storage },
  { id: "models", title: "Models", of: "This runtime", Body: Models },
  { id: "about", title: "About", of: "This runtime", Body: About },
] as const;

/** What this browser does, and what the runtime says of itself. One setting a row, its control at the right. */
export default function SettingsPage({ rest }: PageProps) {
  const current = SECTIONS.find((section) => section.id === rest) ?? SECTIONS[0];
  const { Body } = current;
  const clusters = ["This browser", ...(connection.value ? ["This runtime"] : [])];
  return (
    <div class="settings">
      <nav class="settings-list" aria-label="Settings">
        {clusters.map((cluster) => (
          <div key={cluster}>
            <div class="settings-cluster">{cluster}</div>
            {SECTIONS.filter((section) => section.of === cluster).map((section) => (
              <a key={section.id} href={`/settings/${section.id}`} aria-current={section === current ? "page" : undefined}>
                {section.title}
              </a>
            ))}
          </div>
        ))}
      </nav>
      <div class="settings-choice">
        <Select
          label="Section"
          value={current.id}
          choices={SECTIONS.filter((section) => clusters.includes(section.of)).map((section) => [section.id, section.title] as const)}
          onChange={(id) => navigate(`/settings/${id}`)}
        />
      </div>
      <section class="settings-body" aria-label={current.title}>
        <h2>{current.title}</h2>
        <Body />
      </section>
    </div>
  );
}
