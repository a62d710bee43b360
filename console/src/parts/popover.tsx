import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Button, type ButtonProps } from "./button.tsx";
import { Icon } from "./icon.tsx";
import type { IconName } from "./icon-paths.ts";

const GAP = 4;
const EDGE = 8;

/** What floats beside the thing that opened it. Escape, a click outside and a scroll of the page close it. */
export function Popover(props: {
  anchor: HTMLElement | null;
  label: string;
  role?: "dialog" | "menu" | "listbox";
  onClose: () => void;
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const { anchor, onClose } = props;
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown || !anchor) return;
    place(shown, anchor);
    const first = shown.querySelector<HTMLElement>("[autofocus], input, textarea, button, [tabindex='0'], a[href]");
    (first ?? shown).focus();
    const outside = (event: Event) => {
      const target = event.target as Node;
      if (!shown.contains(target) && !anchor.contains(target)) onClose();
    };
    const moved = () => place(shown, anchor);
    document.addEventListener("pointerdown", outside, true);
    window.addEventListener("resize", moved);
    document.addEventListener("scroll", moved, true);
    return () => {
      document.removeEventListener("pointerdown", outside, true);
      window.removeEventListener("resize", moved);
      document.removeEventListener("scroll", moved, true);
      if (shown.contains(document.activeElement) || document.activeElement === document.body) anchor.focus();
    };
  }, [anchor, onClose]);
  return (
    <div
      ref={box}
      class="popover"
      role={props.role ?? "dialog"}
      aria-label={props.label}
      tabIndex={-1}
      onKeyDown={(event: TargetedKeyboardEvent<HTMLDivElement>) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          onClose();
        }
        if (event.key === "Tab" && props.role === "menu") onClose();
      }}
    >
      {props.children}
    </div>
  );
}

function place(shown: HTMLElement, anchor: HTMLElement): void {
  const at = anchor.getBoundingClientRect();
  const width = shown.offsetWidth;
  const height = shown.offsetHeight;
  const left = Math.max(EDGE, Math.min(at.left, innerWidth - width - EDGE));
  const fitsBelow = at.bottom + GAP + height <= innerHeight - EDGE;
  const top = fitsBelow ? at.bottom + GAP : Math.max(EDGE, at.top - GAP - height);
  shown.style.setProperty("left", `${left}px`);
  shown.style.setProperty("top", `${top}px`);
}

/** A button with what floats from it. `children` get a function that closes it. */
export function PopoverButton(props: Omit<ButtonProps, "onClick" | "children"> & {
  text?: ComponentChildren;
  says: string;
  role?: "dialog" | "menu";
  children: (close: () => void) => ComponentChildren;
}) {
  const { text, says, role, children, ...rest } = props;
  const [isOpen, open] = useState(false);
  const anchor = useRef<HTMLButtonElement>(null);
  const close = useRef(() => open(false)).current;
  return (
    <>
      <Button {...rest} elementRef={anchor} expanded={isOpen} onClick={() => open(!isOpen)}>
        {text}
      </Button>
      {isOpen && (
        <Popover anchor={anchor.current} label={says} role={role ?? "dialog"} onClose={close}>
          {children(close)}
        </Popover>
      )}
    </>
  );
}

export interface MenuItem {
  text: string;
  icon?: IconName;
  note?: string;
  why?: string | undefined;
  danger?: boolean;
  checked?: boolean;
  onPick?: () => void;
  href?: string;
}

/** A list of things to do, moved in by arrow keys and by first letters. */
export function Menu({ items, onClose }: { items: readonly MenuItem[]; onClose: () => void }) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => list.current?.querySelector<HTMLElement>("[role^=menuitem]")?.focus(), []);
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const all = [...event.currentTarget.querySelectorAll<HTMLElement>("[role^=menuitem]")];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next =
      event.key === "ArrowDown" || event.key === "j"
        ? at + 1
        : event.key === "ArrowUp" || event.key === "k"
          ? at - 1 + all.length
          : event.key === "Home"
            ? 0
            : event.key === "End"
              ? all.length - 1
              : -1;
    if (next < 0 && !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    all[next % all.length]?.focus();
  };
  return (
    <div ref={list} class="menu" onKeyDown={move}>
      {items.map((one) => {
        const role = one.checked === undefined ? "menuitem" : "menuitemcheckbox";
        const inside = (
          <>
            {one.checked !== undefined ? (
              <span class="tick">{one.checked && <Icon name="check" />}</span>
            ) : (
              one.icon && <Icon name={one.icon} />
            )}
            <span class="grow">{one.text}</span>
            {one.note && <span class="faint">{one.note}</span>}
          </>
        );
        const shared = {
          key: one.text,
          role,
          tabIndex: -1,
          class: one.danger ? "is-failed" : undefined,
          title: one.why,
          "aria-disabled": one.why ? true : undefined,
          "aria-checked": one.checked,
        } as const;
        const pick = () => {
          if (one.why) return;
          onClose();
          one.onPick?.();
        };
        return one.href ? (
          <a {...shared} href={one.href} onClick={pick}>
            {inside}
          </a>
        ) : (
          <button {...shared} type="button" onClick={pick}>
            {inside}
          </button>
        );
      })}
    </div>
  );
}

/** A button with a menu. */
export function MenuButton(props: Omit<ButtonProps, "onClick" | "children"> & { text?: ComponentChildren; says: string; items: readonly MenuItem[] }) {
  const { items, ...rest } = props;
  return (
    <PopoverButton {...rest} role="menu">
      {(close) => <Menu items={items} onClose={close} />}
    </PopoverButton>
  );
}
