import { useState } from "preact/hooks";

import { toCsv } from "../../model/event-list.ts";
import { formatBytes } from "../../model/formats.ts";
import { Button } from "../../parts/button.tsx";
import { download } from "../../parts/download.ts";
import { SearchField } from "../../parts/field.tsx";
import { Facts, Tag } from "../../parts/figures.tsx";
import { Id, Moment } from "../../parts/moments.tsx";
import { Split, Toolbar } from "../../parts/pane.tsx";
import { CopyButton, Disconnected, Empty, Failure, NoMatch, SkeletonRows } from "../../parts/states.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { setQuery, useQuery } from "../../shell/router.ts";
import { call } from "../../wire/client.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import { useCall } from "../../wire/resource.ts";
import type { ArtifactRow } from "../../wire/types.ts";

const MOST = 500;
const nameOf = (row: ArtifactRow): string => row.ref.filename || row.ref.id;
const keyOf = (row: ArtifactRow): string => row.ref.id;
const COLUMNS: readonly Column<ArtifactRow>[] = [
  { name: "Name", width: "minmax(120px,1.6fr)", phone: "first", cell: (row) => <b title={row.ref.id}>{nameOf(row)}</b> },
  { name: "Type", width: "minmax(80px,1fr)", phone: "second", cell: (row) => <code class="soft">{row.ref.mime_type}</code> },
  { name: "Size", width: "72px", align: "end", phone: "second", cell: (row) => formatBytes(row.ref.size_bytes) },
  { name: "Session", width: "minmax(64px,.8fr)", from: "medium", phone: "hide", cell: (row) => `${row.ref.scope.user} · ${row.ref.scope.session}` },
  { name: "Source", width: "minmax(64px,.6fr)", from: "medium", phone: "hide", cell: (row) => row.source },
  { name: "Created", width: "84px", phone: "hide", cell: (row) => <Moment at={row.created_at} /> },
];

/** Files that people sent, and results too large to stand in a run. */
export default function ArtifactsPage() {
  const [words, search] = useQuery("q");
  const [at, choose] = useQuery("at");
  const [listed, reload] = useCall("artifacts.list", { limit: MOST }, { everyMs: 30_000 });
  if (listed.state === "disconnected") return <Disconnected />;
  if (listed.state === "loading") return <SkeletonRows noun="artifacts" />;
  if (listed.state === "failed") return <Failure noun="artifacts" error={listed.error} onRetry={reload} />;
  const { rows, total_matched } = listed.data;
  if (!rows.length) return <Empty title="No artifacts yet">Files that people send to a run, and results too large to stand in it, are kept here.</Empty>;
  const wanted = words.toLowerCase();
  const shown = rows.filter((row) => `${nameOf(row)} ${row.ref.mime_type ?? ""} ${row.source ?? ""} ${(row.tags ?? []).join(" ")} ${row.ref.scope.session}`.toLowerCase().includes(wanted));
  const current = rows.find((row) => keyOf(row) === at);
  const csv = () =>
    toCsv([["id", "name", "type", "bytes", "tenant", "user", "session", "source", "created"], ...shown.map(({ ref, source, created_at }) => [ref.id, ref.filename ?? "", ref.mime_type ?? "", String(ref.size_bytes), ref.scope.tenant, ref.scope.user, ref.scope.session, source ?? "", created_at])]);
  return (
    <>
      <Toolbar label="Filters">
        <SearchField label="Filter by name, type or tag" value={words} onChange={search} />
        <span class="faint small whole">{total_matched > rows.length ? `the newest ${rows.length} of ${total_matched}` : ""}</span>
        <span class="grow" />
        <Button kind="quiet" icon="download" why={shown.length ? undefined : "Nothing is shown"} onClick={() => download("artifacts.csv", csv(), "text/csv")}>
          CSV
        </Button>
      </Toolbar>
      <Split label="Artifact" rail={current && <Artifact key={at} row={current} onClose={() => setQuery({ at: "" })} />}>
        {shown.length ? <Table label="Artifacts" rows={shown} columns={COLUMNS} keyOf={keyOf} current={at} onCurrent={(row) => choose(keyOf(row))} describe={nameOf} /> : <NoMatch noun="artifact" onClear={() => search("")} />}
      </Split>
    </>
  );
}

/** What an artifact is, and a link to its content where the store makes links. Its content is not drawn in this page. */
function Artifact({ row, onClose }: { row: ArtifactRow; onClose: () => void }) {
  const [asked, say] = useState<{ url: string } | WireError | "asking" | null>(null);
  const { ref } = row;
  const open = async (): Promise<void> => {
    say("asking");
    try {
      const found = await call("artifacts.get_ref", { scope: ref.scope, id: ref.id }, { session: ref.scope.session });
      say({ url: found.presigned_url });
    } catch (error) {
      say(asWireError(error));
    }
  };
  return (
    <>
      <div class="pane-head">
        <h2 class="cut">{nameOf(row)}</h2>
        <span class="grow" />
        <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
      </div>
      <div class="section">
        <Facts
          label="Artifact"
          rows={[
            ["Id", <Id id={ref.id} />],
            ["Type", ref.mime_type && <code>{ref.mime_type}</code>],
            ["Size", formatBytes(ref.size_bytes)],
            ["Owner", `${ref.scope.tenant} / ${ref.scope.user} / ${ref.scope.session}`],
            ["Source", row.source],
            ["Tags", row.tags?.length ? row.tags.map((tag) => <Tag key={tag}>{tag}</Tag>) : ""],
            ["Driver", row.driver],
            ["Created", <Moment at={row.created_at} />],
            ["SHA-256", ref.sha256 && <CopyButton text={ref.sha256} label="Copy the checksum" />],
          ]}
        />
      </div>
      <div class="section">
        {asked instanceof Error ? (
          <p role="alert">{asked.code === "presign_unsupported" ? `The store ${row.driver} makes no links, so its content cannot be shown here.` : `${asked.code}: ${asked.message}`}</p>
        ) : asked && asked !== "asking" ? (
          <a class="link" href={asked.url} target="_blank" rel="noopener noreferrer">
            Open its content
          </a>
        ) : (
          <Button icon="link" why={asked === "asking" ? "The link is on its way" : undefined} onClick={() => void open()}>
            Get a link
          </Button>
        )}
      </div>
    </>
  );
}
