import type { ComponentChildren } from "preact";

/** The line above a section: its name, how many, and what can be done with all of it. */
export function PaneHead(props: { title: ComponentChildren; count?: ComponentChildren; children?: ComponentChildren; level?: 2 | 3 }) {
  const Heading = props.level === 3 ? "h3" : "h2";
  return (
    <div class="pane-head">
      <Heading>{props.title}</Heading>
      {props.count !== undefined && <span class="count">{props.count}</span>}
      <span class="grow" />
      {props.children}
    </div>
  );
}

/** A list with what is chosen in it beside; below each other where there is no room. */
export function Split({ children, rail, label }: { children: ComponentChildren; rail?: ComponentChildren; label: string }) {
  return (
    <div class={rail ? "split" : "split is-whole"}>
      <div class="split-main">{children}</div>
      {rail && (
        <aside class="split-rail" aria-label={label}>
          {rail}
        </aside>
      )}
    </div>
  );
}

/** The row of filters and actions above a list. */
export function Toolbar({ children, label }: { children: ComponentChildren; label: string }) {
  return (
    <div class="toolbar" role="group" aria-label={label}>
      {children}
    </div>
  );
}
