import { Button } from "../parts/button.tsx";
import { keyGroups, singleKeys, written, type KeyGroup } from "./keys.ts";
import { Overlay } from "./overlay.tsx";
import { hideKeys, keysShown } from "./palette-state.ts";

/** Groups of the same name as one, each key once. */
function merged(groups: readonly KeyGroup[]): KeyGroup[] {
  const byName = new Map<string, Map<string, KeyGroup["bindings"][number]>>();
  for (const group of groups) {
    const known = byName.get(group.where) ?? new Map();
    for (const one of group.bindings) known.set(one.keys, one);
    byName.set(group.where, known);
  }
  return [...byName].map(([where, bindings]) => ({ where, bindings: [...bindings.values()] }));
}

const IN_LISTS: KeyGroup = {
  where: "Lists",
  bindings: [
    { keys: "j k", does: "Down, up", run: () => {} },
    { keys: "Enter", does: "Open", run: () => {} },
    { keys: "x ⇧X", does: "Select, up to here", run: () => {} },
    { keys: "/", does: "Filter", run: () => {} },
    { keys: ".", does: "Show what is new", run: () => {} },
  ],
};

export function KeysPage() {
  if (!keysShown.value) return null;
  return (
    <Overlay label="Keys" onClose={hideKeys} wide>
      <header class="overlay-head">
        <h2>Keys</h2>
        <span class="grow" />
        <Button kind="quiet" icon="close" label="Close" onClick={hideKeys} />
      </header>
      {!singleKeys.value && <p class="overlay-note">Single keys are off. Settings, Keys turns them on.</p>}
      <div class="key-groups">
        {[...merged(keyGroups()), IN_LISTS].map((group) => (
          <section key={group.where}>
            <h3>{group.where}</h3>
            <dl>
              {group.bindings.map((one) => (
                <div key={one.keys}>
                  <dt>
                    {written(one.keys)
                      .split(" ")
                      .map((key) => (
                        <kbd key={key}>{key}</kbd>
                      ))}
                  </dt>
                  <dd>{one.does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Overlay>
  );
}
