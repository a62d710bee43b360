import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function ToolsPage(_: PageProps) {
  const [resource, reload] = useCall("tools.list", {});
  return <Soon noun="tools" resource={resource} reload={reload} />;
}
