import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useState } from "preact/hooks";

import { Icon } from "../parts/icon.tsx";
import type { IconName } from "../parts/icon-paths.ts";
import { call } from "../wire/client.ts";
import { isConnected } from "../wire/connection.ts";
import { keyGroups, written } from "./keys.ts";
import { Overlay } from "./overlay.tsx";
import { PAGES } from "./pages.ts";
import { closePalette, paletteText } from "./palette-state.ts";
import { navigate } from "./router.ts";

interface Option {
  id: string;
  group: string;
  text: string;
  note?: string;
  icon: IconName;
  key?: string;
  run: () => void;
}

const SEARCH_MS = 180;
const INDEXES: Record<string, { group: string; icon: IconName; to: (id: string) => string }> = {
  sessions: { group: "Sessions", icon: "sessions", to: (id) => `/sessions/${encodeURIComponent(id)}` },
  tasks: { group: "Tasks", icon: "tasks", to: (id) => `/tasks/${encodeURIComponent(id)}` },
  events: { group: "Events", icon: "events", to: (id) => `/events?at=${encodeURIComponent(id)}` },
  artifacts: { group: "Artifacts", icon: "artifacts", to: (id) => `/artifacts?id=${encodeURIComponent(id)}` },
};

function pages(words: string): Option[] {
  return PAGES.filter((page) => page.title.toLowerCase().includes(words)).map((page) => ({
    id: `page-${page.path}`,
    group: "Pages",
    text: page.title,
    icon: page.icon,
    ...(page.key ? { key: `g ${page.key}` } : {}),
    run: () => navigate(page.path),
  }));
}

function commands(words: string): Option[] {
  const all = keyGroups().flatMap((group) => group.bindings.map((one) => ({ ...one, where: group.where })));
  return all
    .filter((one) => !one.isMovement && !one.why && one.does.toLowerCase().includes(words))
    .map((one) => ({ id: `do-${one.where}-${one.keys}`, group: "Commands", text: one.does, note: one.where, icon: "right", key: one.keys, run: one.run }));
}

function ids(id: string): Option[] {
  if (!id) return [];
  return ["tasks", "sessions"].flatMap((index) => {
    const known = INDEXES[index];
    return known ? [{ id: `id-${index}`, group: "Go to", text: id, note: known.group.toLowerCase(), icon: known.icon, run: () => navigate(known.to(id)) }] : [];
  });
}

/** What the runtime finds for some words, 180 ms after the last change of them. */
function useFound(words: string): Option[] {
  const [found, set] = useState<Option[]>([]);
  useEffect(() => {
    set([]);
    if (words.length < 2 || /^[>#]/.test(words) || !isConnected.value) return;
    const aborter = new AbortController();
    const timer = setTimeout(() => {
      call("search.query", { query: words, page_size: 8 }, { signal: aborter.signal }).then(
        (answer) =>
          set(
            answer.rows.flatMap((row, at) => {
              const known = INDEXES[row.index];
              return known
                ? [{ id: `found-${at}`, group: known.group, text: row.preview || row.id, note: row.id.slice(-6), icon: known.icon, run: () => navigate(known.to(row.id)) }]
                : [];
            }),
          ),
        () => set([]),
      );
    }, SEARCH_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [words]);
  return found;
}

export function Palette() {
  return paletteText.value === null ? null : <OpenPalette first={paletteText.value} />;
}

function OpenPalette({ first }: { first: string }) {
  const [text, write] = useState(first);
  const [at, moveTo] = useState(0);
  const list = useId();
  const words = text.trim().toLowerCase();
  const found = useFound(text.trim());
  const options = words.startsWith(">")
    ? commands(words.slice(1).trim())
    : words.startsWith("#")
      ? ids(text.trim().slice(1).trim())
      : [...pages(words), ...found, ...(words ? commands(words) : [])];
  const current = Math.min(at, options.length - 1);
  const pick = (option: Option | undefined) => {
    if (!option) return;
    closePalette();
    option.run();
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLInputElement>) => {
    if (event.key === "ArrowDown") moveTo((current + 1) % Math.max(1, options.length));
    else if (event.key === "ArrowUp") moveTo((current - 1 + options.length) % Math.max(1, options.length));
    else if (event.key === "Enter") pick(options[current]);
    else return;
    event.preventDefault();
  };
  return (
    <Overlay label="Search or run a command" onClose={closePalette}>
      <div class="palette-field">
        <Icon name="search" />
        <input
          // biome-ignore lint: the palette is opened to be written into
          autofocus
          role="combobox"
          aria-label="Search or run a command"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={options[current] ? `${list}-${current}` : undefined}
          placeholder="Search, > for commands, # for an id"
          value={text}
          onInput={(event) => {
            write(event.currentTarget.value);
            moveTo(0);
          }}
          onKeyDown={onKeyDown}
        />
        <kbd>esc</kbd>
      </div>
      <div class="palette-list" id={list} role="listbox" aria-label="Found">
        {options.map((option, index) => (
          <div key={option.id} role="presentation">
            {option.group !== options[index - 1]?.group && (
              <div class="palette-group" role="presentation">
                {option.group}
              </div>
            )}
            <div
              id={`${list}-${index}`}
              class="palette-option"
              role="option"
              aria-selected={index === current}
              onPointerMove={() => moveTo(index)}
              onClick={() => pick(option)}
            >
              <Icon name={option.icon} />
              <span class="cut">{option.text}</span>
              {option.note && <span class="faint cut">{option.note}</span>}
              <span class="grow" />
              {option.key && <kbd>{written(option.key)}</kbd>}
            </div>
          </div>
        ))}
        {options.length === 0 && <p class="palette-none faint">Nothing found</p>}
      </div>
    </Overlay>
  );
}
