import { useState } from "preact/hooks";

import { isEnd } from "../../model/events/run-state.ts";
import type { RunView } from "../../model/events/views.ts";
import { plural } from "../../model/formats.ts";
import { parseUnifiedDiff } from "../../model/text/detect.ts";
import { Button } from "../../parts/button.tsx";
import { download } from "../../parts/download.ts";
import { Glyph } from "../../parts/glyph.tsx";
import { DiffLines } from "../../parts/rich.tsx";
import { say } from "../../parts/toast.tsx";
import { Overlay } from "../../shell/overlay.tsx";
import { call } from "../../wire/client.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import type { DifferenceRow, ReplayAnswer } from "../../wire/types.ts";

/** What can be done with the record of a run: replay it, keep it as a test, fork it. Absent where the server keeps none. */
export function RecordActions({ run, session, onFork, forkWhy }: { run: RunView; session: string; onFork: () => void; forkWhy: string }) {
  const [isReplaying, replaying] = useState(false);
  const [replay, show] = useState<ReplayAnswer | WireError | null>(null);
  const doReplay = async (): Promise<void> => {
    replaying(true);
    try {
      show(await call("runs.replay", { id: run.id }, { session }));
    } catch (error) {
      show(asWireError(error));
    }
    replaying(false);
  };
  return (
    <>
      <Button small kind="quiet" icon="replay" why={isReplaying ? "The replay goes on" : undefined} onClick={() => void doReplay()}>
        {isReplaying ? "Replaying" : "Replay"}
      </Button>
      <FreezeButton run={run} session={session} />
      <Button small icon="fork" hint="F" why={forkWhy || undefined} onClick={onFork}>
        Fork from here
      </Button>
      {replay && (
        <Overlay label="Replay" onClose={() => show(null)}>
          <div class="overlay-head">
            <h2>Replay</h2>
            <span class="grow" />
            <Button small kind="quiet" icon="close" label="Close" onClick={() => show(null)} />
          </div>
          <div class="replay-body">{replay instanceof Error ? <ReplayFailed error={replay} /> : <Replayed answer={replay} />}</div>
        </Overlay>
      )}
    </>
  );
}

/** Keep a run as a test: two files to put into the project. */
export function FreezeButton({ run, session, text = "Freeze as test" }: { run: RunView; session: string; text?: string }) {
  const freeze = async (): Promise<void> => {
    try {
      const made = await call("runs.freeze", { id: run.id }, { session });
      for (const file of made.files) download(file.path, file.content);
      say({ glyph: "complete", text: `Frozen as ${made.name}: ${made.files.map((file) => file.path).join(" and ")}` });
    } catch (error) {
      const failed = asWireError(error);
      say({ glyph: "failed", text: `Not frozen. ${failed.code}: ${failed.message}` });
    }
  };
  return (
    <Button small kind="quiet" icon="freeze" why={isEnd(run.status) ? undefined : "Only a run that has ended can be frozen"} onClick={() => void freeze()}>
      {text}
    </Button>
  );
}

function ReplayFailed({ error }: { error: WireError }) {
  return (
    <p class="fact-line">
      <Glyph name="failed" />
      <span>
        It could not be replayed. <code>{error.code}</code>: {error.message}
      </span>
    </p>
  );
}

function Replayed({ answer }: { answer: ReplayAnswer }) {
  const { difference } = answer;
  return (
    <>
      <p class="fact-line">
        <Glyph name={answer.is_same ? "complete" : "failed"} />
        <span>
          {answer.is_same ? "It came out the same: " : "It came out otherwise: "}
          {plural(answer.steps, "step")}, {plural(answer.model_calls, "model call")} answered from the record, nothing called.
          {!answer.is_whole && " The record ends before the run does."}
        </span>
      </p>
      {difference?.what && <Difference difference={difference} />}
    </>
  );
}

function Difference({ difference }: { difference: DifferenceRow }) {
  return (
    <>
      <p>
        <b>{difference.step > 0 ? `Step ${difference.step}, ${difference.kind}` : difference.kind}</b> {difference.what}
      </p>
      {difference.diff && <DiffLines lines={parseUnifiedDiff(difference.diff)} label="What differs" />}
    </>
  );
}
