import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function PlaygroundPage(_: PageProps) {
  const [resource, reload] = useCall("agents.list", {});
  return <Soon noun="agents" resource={resource} reload={reload} />;
}
