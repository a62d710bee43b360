/** One frame of a stream of server-sent events. `comment` frames carry no event. */
export interface Frame {
  event: string;
  data: string;
  id: string | null;
  comment: string | null;
}

/** Cuts a stream's text into frames, however it is split on the way. */
export class FrameReader {
  private rest = "";

  push(text: string): Frame[] {
    this.rest += text;
    const found: Frame[] = [];
    for (;;) {
      const end = /\r\n\r\n|\n\n|\r\r/.exec(this.rest);
      if (!end) return found;
      const frame = parseFrame(this.rest.slice(0, end.index));
      this.rest = this.rest.slice(end.index + end[0].length);
      if (frame) found.push(frame);
    }
  }
}

function parseFrame(block: string): Frame | null {
  const frame: Frame = { event: "message", data: "", id: null, comment: null };
  const data: string[] = [];
  let isEmpty = true;
  for (const line of block.split(/\r\n|\n|\r/)) {
    if (!line) continue;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    isEmpty = false;
    if (colon === 0) frame.comment = value;
    else if (field === "event") frame.event = value;
    else if (field === "data") data.push(value);
    else if (field === "id" && !value.includes("\0")) frame.id = value;
  }
  frame.data = data.join("\n");
  return isEmpty ? null : frame;
}
