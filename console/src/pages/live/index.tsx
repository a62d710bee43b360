import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function LivePage(_: PageProps) {
  const [resource, reload] = useCall("runtime.counters", {});
  return <Soon noun="runs" resource={resource} reload={reload} />;
}
