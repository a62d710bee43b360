import type { ComponentChildren, Ref, TargetedKeyboardEvent, TargetedMouseEvent } from "preact";

import { Icon } from "./icon.tsx";
import type { IconName } from "./icon-paths.ts";

export interface ButtonProps {
  children?: ComponentChildren;
  icon?: IconName;
  /** `primary`: the one thing to do here. `quiet`: without a frame. `danger`: ends or destroys. */
  kind?: "plain" | "primary" | "quiet" | "danger";
  small?: boolean;
  /** Why it cannot be pressed now. The button stays in reach of the keyboard and says it. */
  why?: string | undefined;
  /** The key that does the same. */
  hint?: string;
  label?: string;
  title?: string;
  type?: "button" | "submit";
  pressed?: boolean;
  expanded?: boolean;
  onClick?: (event: TargetedMouseEvent<HTMLButtonElement>) => void;
  elementRef?: Ref<HTMLButtonElement>;
}

/** A button. Without children it is its icon, and `label` is needed. */
export function Button(props: ButtonProps) {
  const { kind = "plain", small = false, why } = props;
  const classes = ["button", kind, small ? "small" : "", props.children === undefined ? "only-icon" : ""];
  return (
    <button
      ref={props.elementRef ?? null}
      type={props.type ?? "button"}
      class={classes.filter(Boolean).join(" ")}
      title={why || props.title || (props.children === undefined ? props.label : undefined)}
      aria-label={props.label}
      aria-disabled={why ? true : undefined}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      aria-keyshortcuts={props.hint && props.hint.length === 1 ? props.hint.toLowerCase() : undefined}
      onClick={(event) => {
        if (why) event.preventDefault();
        else props.onClick?.(event);
      }}
    >
      {props.icon && <Icon name={props.icon} />}
      {props.children}
      {props.hint && <kbd aria-hidden="true">{props.hint}</kbd>}
    </button>
  );
}

/** A link that looks like a button. */
export function ButtonLink(props: { href: string; children: ComponentChildren; icon?: IconName; kind?: ButtonProps["kind"]; small?: boolean }) {
  return (
    <a class={["button", props.kind ?? "plain", props.small ? "small" : ""].filter(Boolean).join(" ")} href={props.href}>
      {props.icon && <Icon name={props.icon} />}
      {props.children}
    </a>
  );
}

export interface Choice<T extends string> {
  value: T;
  text: string;
  count?: number | undefined;
  why?: string;
}

/** One of a few values, all in sight. */
export function Segments<T extends string>(props: {
  label: string;
  value: T;
  choices: readonly Choice<T>[];
  onChange: (value: T) => void;
  small?: boolean;
}) {
  return (
    <span class={props.small ? "segments small" : "segments"} role="group" aria-label={props.label}>
      {props.choices.map((one) => (
        <button
          key={one.value}
          type="button"
          aria-pressed={one.value === props.value}
          aria-disabled={one.why ? true : undefined}
          title={one.why}
          onClick={() => !one.why && props.onChange(one.value)}
        >
          {one.text}
          {one.count !== undefined && <span class="count">{one.count}</span>}
        </button>
      ))}
    </span>
  );
}

/** The parts of one thing, of which one is open. Arrow keys move, as WAI-ARIA has it for tabs. */
export function Tabs<T extends string>(props: {
  label: string;
  value: T;
  choices: readonly Choice<T>[];
  onChange: (value: T) => void;
  children?: ComponentChildren;
}) {
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = props.choices.findIndex((one) => one.value === props.value);
    const next = props.choices[(at + step + props.choices.length) % props.choices.length];
    if (!next) return;
    props.onChange(next.value);
    event.currentTarget.querySelector<HTMLElement>(`[data-tab="${CSS.escape(next.value)}"]`)?.focus();
  };
  return (
    <div class="tab-row">
      <div class="tab-list" role="tablist" aria-label={props.label} onKeyDown={move}>
        {props.choices.map((one) => (
          <button
            key={one.value}
            type="button"
            role="tab"
            data-tab={one.value}
            aria-selected={one.value === props.value}
            tabIndex={one.value === props.value ? 0 : -1}
            onClick={() => props.onChange(one.value)}
          >
            {one.text}
            {one.count !== undefined && <span class="count">{one.count}</span>}
          </button>
        ))}
      </div>
      {props.children}
    </div>
  );
}
