import { useEffect, useRef, useState } from "preact/hooks";

import { formatBytes } from "../../model/formats.ts";
import { Button, Segments } from "../../parts/button.tsx";
import { Icon } from "../../parts/icon.tsx";
import { call } from "../../wire/client.ts";
import { asWireError } from "../../wire/error.ts";
import type { Conversation } from "./source.ts";

/** A file on its way to the runtime, or there. */
export interface Attachment {
  readonly key: string;
  readonly name: string;
  readonly size: number;
  readonly artifact: string;
  readonly problem: string;
}

export interface Message {
  readonly text: string;
  readonly artifacts: readonly string[];
  readonly agent: string;
}

type When = "queue" | "steer";

/** Where a message is written. While a run goes on it is queued behind it, or read by it before its next step. */
export function Composer({ talk, agent, why, onStart }: { talk: Conversation; agent: string; why: string; onStart: (message: Message) => Promise<void> }) {
  const [text, write] = useState("");
  const [when, choose] = useState<When>("queue");
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [queue, setQueue] = useState<readonly Message[]>([]);
  const [problem, tell] = useState("");
  const [isOver, over] = useState(false);
  const [isBusy, busy] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const run = talk.active;
  const canSteer = run !== null && run.status !== "pending";

  const begin = async (message: Message): Promise<void> => {
    busy(true);
    tell("");
    try {
      await onStart(message);
    } catch (error) {
      const said = asWireError(error);
      tell(`Not sent. ${said.code}: ${said.message}`);
      write((now) => now || message.text);
    }
    busy(false);
  };
  // What is queued starts one by one, each when nothing goes on any more.
  useEffect(() => {
    const next = queue[0];
    if (run || isBusy || !next) return;
    setQueue(queue.slice(1));
    void begin(next);
  }, [run === null, isBusy, queue]);

  const add = (chosen: Iterable<File>): void => {
    for (const file of chosen) {
      const key = crypto.randomUUID();
      const mine: Attachment = { key, name: file.name || "pasted", size: file.size, artifact: "", problem: "" };
      const put = (change: Partial<Attachment>): void => setFiles((now) => now.map((one) => (one.key === key ? { ...one, ...change } : one)));
      setFiles((now) => [...now, mine]);
      upload(file, talk.session).then(
        (artifact) => put({ artifact }),
        (error: unknown) => put({ problem: asWireError(error).code }),
      );
    }
  };
  const isOnItsWay = files.some((file) => !file.artifact && !file.problem);
  const cannot =
    why ||
    (!text.trim() && files.length === 0 ? "Write a message first" : "") ||
    (isOnItsWay ? "A file is still on its way" : "") ||
    (files.some((file) => file.problem) ? "Take away the file that was refused" : "") ||
    (run && when === "steer" && files.length ? "A steer is text alone: queue it, or take the files away" : "") ||
    (run && when === "steer" && !canSteer ? "The run has not begun" : "");
  const sendIt = (): void => {
    if (cannot) return;
    const message: Message = { text: text.trim(), artifacts: files.map((file) => file.artifact), agent };
    write("");
    setFiles([]);
    if (run && when === "steer") void talk.send(run.id, "user_message", { message: message.text });
    else if (run || queue.length || isBusy) setQueue([...queue, message]);
    else void begin(message);
  };

  const name = (run?.agent || agent) || "the agent";
  return (
    <div class="chat-foot">
      {queue.map((message, at) => (
        <div key={at} class="queued">
          <Icon name="clock" small />
          <span class="cut grow">{message.text || "files"}</span>
          <span class="faint whole">sent when the run ends</span>
          <Button small kind="quiet" icon="close" label="Take it out of the queue" onClick={() => setQueue(queue.filter((_, index) => index !== at))} />
        </div>
      ))}
      {problem && (
        <p class="is-failed small" role="alert">
          {problem}
        </p>
      )}
      <form
        class={isOver ? "composer is-over" : "composer"}
        onSubmit={(event) => {
          event.preventDefault();
          sendIt();
        }}
        onDragOver={(event) => {
          event.preventDefault();
          over(true);
        }}
        onDragLeave={() => over(false)}
        onDrop={(event) => {
          event.preventDefault();
          over(false);
          add(event.dataTransfer?.files ?? []);
        }}
      >
        <textarea
          rows={2}
          aria-label="Message"
          placeholder={isOver ? "Drop the files here" : run ? `Tell ${name} while it works` : `What should ${name} do?`}
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          onPaste={(event) => {
            const pasted = event.clipboardData?.files;
            if (!pasted?.length) return;
            event.preventDefault();
            add(pasted);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !(event.metaKey || event.ctrlKey)) return;
            event.preventDefault();
            sendIt();
          }}
        />
        {files.length > 0 && (
          <ul class="files" aria-label="Files">
            {files.map((file) => (
              <li key={file.key} class="chip is-set">
                <span class={file.problem ? "file is-failed" : "file"}>
                  <Icon name="attach" small />
                  {file.name}
                  <span class="faint">{file.problem || (file.artifact ? formatBytes(file.size) : "on its way")}</span>
                </span>
                <button type="button" aria-label={`Take ${file.name} away`} onClick={() => setFiles(files.filter((one) => one !== file))}>
                  <Icon name="close" small />
                </button>
              </li>
            ))}
          </ul>
        )}
        <div class="composer-actions">
          <input ref={picker} type="file" multiple hidden aria-label="Files to attach" onChange={(event) => add(event.currentTarget.files ?? [])} />
          <Button small kind="quiet" icon="attach" label="Attach files" onClick={() => picker.current?.click()} />
          {run && (
            <>
              <Segments<When>
                small
                label="When it is read"
                value={when}
                onChange={choose}
                choices={[
                  { value: "queue", text: "Queue" },
                  { value: "steer", text: "Steer" },
                ]}
              />
              <span class="faint small cut hide-small">{when === "steer" ? "is read before the next step" : "is sent when the run ends"}</span>
            </>
          )}
          <span class="grow" />
          {run && <RunButtons talk={talk} />}
          <Button kind="primary" small icon="send" type="submit" hint="⌘Enter" why={cannot || undefined}>
            Send
          </Button>
        </div>
      </form>
    </div>
  );
}

function RunButtons({ talk }: { talk: Conversation }) {
  const run = talk.active;
  if (!run) return null;
  const isPaused = run.pauses.some((pause) => pause.settledAt === null && pause.reason === "external_event");
  return (
    <>
      {isPaused ? (
        <Button small kind="quiet" icon="play" label="Resume the run" onClick={() => void talk.send(run.id, "resume")} />
      ) : (
        <Button small kind="quiet" icon="pause" label="Pause the run" onClick={() => void talk.send(run.id, "pause")} />
      )}
      <Button small kind="danger" icon="stop" label="Cancel the run after this step" onClick={() => void talk.send(run.id, "cancel", { hard: false })} />
    </>
  );
}

/** Keep a file as an artifact of the session; its id is what a run is started with. */
async function upload(file: File, session: string): Promise<string> {
  const { ref } = await call(
    "artifacts.put",
    {
      bytes: base64(new Uint8Array(await file.arrayBuffer())),
      opts: { mime_type: file.type || "application/octet-stream", ...(file.name ? { filename: file.name } : {}) },
    },
    { session },
  );
  return ref.id;
}

const CHUNK = 0x8000;

function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}
