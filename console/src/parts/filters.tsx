import { useRef, useState } from "preact/hooks";

import { FilterChip } from "./field.tsx";
import { Popover } from "./popover.tsx";

const MOST = 200;

export interface FilterChoice {
  value: string;
  text?: string;
}

/** A filter of a list: some values of `choices`, or with `isOpen` any that is written. */
export function ChoiceFilter(props: {
  name: string;
  values: readonly string[];
  choices: readonly FilterChoice[];
  onChange: (values: string[]) => void;
  /** Only one value at a time. */
  single?: boolean;
  /** Values that are not among the choices are taken, too. */
  isOpen?: boolean;
}) {
  const [isShown, show] = useState(false);
  const [words, search] = useState("");
  const anchor = useRef<HTMLSpanElement>(null);
  const close = useRef(() => show(false)).current;
  const { values, single = false } = props;
  const textOf = (value: string) => props.choices.find((one) => one.value === value)?.text ?? value;
  const said = values.length > 2 ? `${values.length} chosen` : values.map(textOf).join(", ");
  const known = props.choices.filter((one) => `${one.value} ${one.text ?? ""}`.toLowerCase().includes(words.toLowerCase())).slice(0, MOST);
  const choose = (value: string) => {
    const isOn = values.includes(value);
    props.onChange(single ? (isOn ? [] : [value]) : isOn ? values.filter((other) => other !== value) : [...values, value]);
    if (single) close();
  };
  const take = () => {
    const only = known.length === 1 ? known[0]?.value : undefined;
    const value = props.isOpen && words.trim() ? words.trim() : only;
    if (value) choose(value);
    search("");
  };
  return (
    <span ref={anchor} class="whole">
      <FilterChip name={props.name} value={said || undefined} expanded={isShown} onOpen={() => show(!isShown)} onClear={() => props.onChange([])} />
      {isShown && (
        <Popover anchor={anchor.current} label={`Filter by ${props.name.toLowerCase()}`} onClose={close}>
          <div class="filter-choices">
            {(props.isOpen || props.choices.length > 8) && (
              <input
                class="input"
                type="search"
                aria-label={`Find ${props.name.toLowerCase()}`}
                placeholder={props.isOpen ? "Write one, Enter takes it" : "Find"}
                value={words}
                onInput={(event) => search(event.currentTarget.value)}
                onKeyDown={(event) => event.key === "Enter" && take()}
              />
            )}
            <div class="filter-list">
              {known.map((one) => (
                <label key={one.value}>
                  <input type={single ? "radio" : "checkbox"} name={`filter-${props.name}`} checked={values.includes(one.value)} onChange={() => choose(one.value)} />
                  <span class="cut" title={one.value}>
                    {one.text ?? one.value}
                  </span>
                </label>
              ))}
              {known.length === 0 && <p class="faint small">{props.choices.length ? "None has these words." : "None is known yet."}</p>}
            </div>
          </div>
        </Popover>
      )}
    </span>
  );
}
