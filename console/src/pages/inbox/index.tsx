import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function InboxPage(_: PageProps) {
  const [resource, reload] = useCall("pause.list", {});
  return <Soon noun="waiting calls" resource={resource} reload={reload} />;
}
