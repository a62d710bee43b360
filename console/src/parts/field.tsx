import type { ComponentChildren, Ref, TargetedKeyboardEvent } from "preact";
import { useId } from "preact/hooks";

import { Icon } from "./icon.tsx";

/** A label, what is filled in, and a hint or what is wrong with it. */
export function Field(props: {
  label: string;
  hint?: ComponentChildren;
  problem?: string | undefined;
  children: (parts: { id: string; "aria-describedby": string | undefined; "aria-invalid": true | undefined }) => ComponentChildren;
}) {
  const id = useId();
  const hasNote = Boolean(props.problem || props.hint);
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children({
        id,
        "aria-describedby": hasNote ? `${id}-note` : undefined,
        "aria-invalid": props.problem ? true : undefined,
      })}
      {hasNote && (
        <p id={`${id}-note`} class={props.problem ? "note is-failed" : "note"}>
          {props.problem || props.hint}
        </p>
      )}
    </div>
  );
}

/** Words that narrow a list. `/` focuses the first one of a page, Escape empties it. */
export function SearchField(props: {
  value: string;
  onChange: (value: string) => void;
  label: string;
  elementRef?: Ref<HTMLInputElement>;
}) {
  return (
    <input
      ref={props.elementRef ?? null}
      class="input search-field"
      type="search"
      data-search
      aria-label={props.label}
      placeholder={`${props.label}  /`}
      value={props.value}
      onInput={(event) => props.onChange(event.currentTarget.value)}
      onKeyDown={(event: TargetedKeyboardEvent<HTMLInputElement>) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        if (props.value) props.onChange("");
        else event.currentTarget.blur();
      }}
    />
  );
}

/** A filter that can be set: its name, its value when it has one, and a cross that takes it away. */
export function FilterChip(props: { name: string; value?: string | undefined; onOpen: () => void; onClear?: () => void; expanded?: boolean }) {
  if (!props.value) {
    return (
      <button type="button" class="chip" aria-expanded={props.expanded} onClick={props.onOpen}>
        <Icon name="plus" small />
        {props.name}
      </button>
    );
  }
  return (
    <span class="chip is-set">
      <button type="button" aria-expanded={props.expanded} onClick={props.onOpen}>
        {props.name}: {props.value}
      </button>
      {props.onClear && (
        <button type="button" aria-label={`Clear ${props.name}`} onClick={props.onClear}>
          <Icon name="close" small />
        </button>
      )}
    </span>
  );
}

export function Select<T extends string>(props: {
  label: string;
  value: T;
  choices: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  id?: string;
}) {
  return (
    <select
      id={props.id}
      class="input"
      aria-label={props.id ? undefined : props.label}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value as T)}
    >
      {props.choices.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
}
