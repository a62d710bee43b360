import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function MemoryPage(_: PageProps) {
  const [resource, reload] = useCall("memory.list", {});
  return <Soon noun="memory entries" resource={resource} reload={reload} />;
}
