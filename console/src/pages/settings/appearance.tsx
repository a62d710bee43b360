import { Segments } from "../../parts/button.tsx";
import { zone } from "../../parts/moments.tsx";
import { formatTime } from "../../model/formats.ts";
import { now } from "../../shell/clock.ts";
import { setSingleKeys, singleKeys } from "../../shell/keys.ts";
import { look, setLook, type Look } from "../../shell/look.ts";
import { showKeys } from "../../shell/palette-state.ts";
import { Button } from "../../parts/button.tsx";
import { Setting } from "./row.tsx";

function LookSetting<K extends keyof Look>(props: { of: K; name: string; note?: string; choices: readonly (readonly [string, string])[] }) {
  return (
    <Setting name={props.name} note={props.note}>
      <Segments
        label={props.name}
        value={look.value[props.of]}
        choices={props.choices.map(([value, text]) => ({ value, text }))}
        onChange={(value) => setLook(props.of, value)}
      />
    </Setting>
  );
}

export function Appearance() {
  return (
    <>
      <LookSetting of="theme" name="Theme" choices={[["system", "System"], ["light", "Light"], ["dark", "Dark"]]} />
      <LookSetting
        of="density"
        name="Density"
        note="Height of rows: 28, 32 or 40 px"
        choices={[["compact", "Compact"], ["standard", "Standard"], ["roomy", "Roomy"]]}
      />
      <LookSetting of="motion" name="Motion" note="System follows what your device asks for" choices={[["system", "System"], ["none", "Off"]]} />
      <LookSetting of="sidebar" name="Sidebar" note="The key [ does the same" choices={[["wide", "Names"], ["rail", "Icons"]]} />
    </>
  );
}

export function Times() {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <>
      <LookSetting of="times" name="Times" note={`Local is ${here}`} choices={[["local", "Local"], ["utc", "UTC"], ["relative", "Relative"]]} />
      <Setting name="Now">
        <span class="soft">{formatTime(now.value, { now: now.value, zone: zone() })}</span>
      </Setting>
    </>
  );
}

export function Keys() {
  return (
    <>
      <Setting name="Single keys" note="Keys without Ctrl, Alt or ⌘, such as j and a; they never act while you write">
        <Segments
          label="Single keys"
          value={singleKeys.value ? "on" : "off"}
          choices={[
            { value: "on", text: "On" },
            { value: "off", text: "Off" },
          ]}
          onChange={(value) => setSingleKeys(value === "on")}
        />
      </Setting>
      <Setting name="All keys" note="What each key does on the page that is open">
        <Button onClick={showKeys}>Show</Button>
      </Setting>
    </>
  );
}
