import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function OverviewPage(_: PageProps) {
  const [resource, reload] = useCall("runtime.counters", {});
  return <Soon noun="overview" resource={resource} reload={reload} />;
}
