import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function SettingsPage(_: PageProps) {
  const [resource, reload] = useCall("runtime.info", {});
  return <Soon noun="settings" resource={resource} reload={reload} />;
}
