import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function SessionsPage(_: PageProps) {
  const [resource, reload] = useCall("sessions.list", {});
  return <Soon noun="sessions" resource={resource} reload={reload} />;
}
