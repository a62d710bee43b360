import { Button, Segments } from "../../parts/button.tsx";
import { setWhen, whenOf, CLASSES, askPermission, permission } from "../../shell/notices.ts";
import { Setting } from "./row.tsx";

const CHOICES = [
  { value: "off", text: "Off" },
  { value: "tab", text: "Tab" },
  { value: "both", text: "Both" },
] as const;
const NO_CHANNEL = "No channel of this runtime delivers these yet";

/** Of what this browser tells, and how: in the tab, or by the browser itself while nobody looks at the tab. */
export function Notifications() {
  return (
    <>
      {CLASSES.map((one) => (
        <Setting key={one.id} name={one.name} note={one.note}>
          <Segments
            label={one.name}
            value={whenOf(one.id)}
            choices={CHOICES}
            onChange={(value) => {
              setWhen(one.id, value);
              if (value === "both") void askPermission();
            }}
          />
        </Setting>
      ))}
      {permission.value === "denied" && <p class="setting-note is-failed">Your browser blocks notifications of this page; its settings allow them.</p>}
      {["E-mail", "Webhook", "Web push"].map((name) => (
        <Setting key={name} name={name}>
          <Button why={NO_CHANNEL}>Off</Button>
        </Setting>
      ))}
    </>
  );
}
