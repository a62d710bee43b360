import { Soon } from "../../parts/soon.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { useCall } from "../../wire/resource.ts";

export default function McpConnectionsPage(_: PageProps) {
  const [resource, reload] = useCall("mcp.servers.list", {});
  return <Soon noun="MCP servers" resource={resource} reload={reload} />;
}
