import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function FlowsPage(_: PageProps) {
  const [resource, reload] = useCall("flows.list", {});
  return <Soon noun="flows" resource={resource} reload={reload} />;
}
