import type { ComponentChildren } from "preact";

/** One setting: what it is, what it does, and its control. */
export function Setting(props: { name: string; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="setting">
      <div>
        <h3>{props.name}</h3>
        {props.note && <p>{props.note}</p>}
      </div>
      <div class="setting-control">{props.children}</div>
    </div>
  );
}
