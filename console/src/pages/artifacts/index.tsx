import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function ArtifactsPage(_: PageProps) {
  const [resource, reload] = useCall("artifacts.list", {});
  return <Soon noun="artifacts" resource={resource} reload={reload} />;
}
