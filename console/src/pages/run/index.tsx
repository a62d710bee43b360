import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function RunPage(_: PageProps) {
  const [resource, reload] = useCall("tasks.list", {});
  return <Soon noun="run" resource={resource} reload={reload} />;
}
