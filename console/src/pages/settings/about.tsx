import { Facts } from "../../parts/figures.tsx";
import { runtime } from "../../wire/runtime.ts";

declare const __VERSION__: string;

export function About() {
  return (
    <div class="settings-facts">
      <Facts
        rows={[
          ["Console", __VERSION__],
          ["Runtime", runtime.value?.build_version],
          ["Licence", "Apache-2.0; the fonts Inter and JetBrains Mono under the SIL Open Font License 1.1"],
          [
            "Parts",
            <a class="link" href="/gallery">
              Gallery of every part and state
            </a>,
          ],
        ]}
      />
    </div>
  );
}
