import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function EventsPage(_: PageProps) {
  const [resource, reload] = useCall("runtime.counters", {});
  return <Soon noun="events" resource={resource} reload={reload} />;
}
