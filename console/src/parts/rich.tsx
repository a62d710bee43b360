import type { ComponentChildren, VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

import { diffLines, type DiffLine } from "../model/compare/diff.ts";
import { exactLines } from "../model/approval/exact.ts";
import { foldText } from "../model/formats.ts";
import type { Json } from "../model/json.ts";
import { kindOfText, parseUnifiedDiff } from "../model/text/detect.ts";
import { parseMarkdown, StreamedMarkdown } from "../model/text/markdown.ts";
import type { Block, Inline } from "../model/text/nodes.ts";

/** Texts of runs as what they are. Elements are made from trees that have no markup in them, so nothing can run. */
export function Markdown({ text, isStreaming = false }: { text: string; isStreaming?: boolean }) {
  const blocks = useMemo(() => parseMarkdown(text, { isStreaming }), [text, isStreaming]);
  return <div class="markdown">{blocks.map(blockNode)}</div>;
}

/** Markdown that is being written: what is complete in it is not read again with each piece that comes. */
export function GrowingMarkdown({ text }: { text: string }) {
  const reader = useRef<StreamedMarkdown | null>(null);
  reader.current ??= new StreamedMarkdown();
  const blocks = useMemo(() => reader.current?.update(text) ?? [], [text]);
  return <div class="markdown is-growing">{blocks.map(blockNode)}</div>;
}

function blockNode(block: Block, at: number): VNode {
  switch (block.kind) {
    case "paragraph":
      return <p key={at}>{block.children.map(inlineNode)}</p>;
    case "heading":
      return (
        <p key={at} class="markdown-heading" role="heading" aria-level={Math.min(6, block.level + 2)}>
          {block.children.map(inlineNode)}
        </p>
      );
    case "code":
      return (
        <pre key={at} class="block">
          {block.text}
        </pre>
      );
    case "quote":
      return <blockquote key={at}>{block.blocks.map(blockNode)}</blockquote>;
    case "rule":
      return <hr key={at} />;
    case "list": {
      const items = block.items.map((item, index) => (
        <li key={index}>
          {item.isDone !== null && <input type="checkbox" checked={item.isDone} disabled aria-label={item.isDone ? "done" : "open"} />}
          {item.blocks.map(blockNode)}
        </li>
      ));
      return block.isOrdered ? (
        <ol key={at} start={block.start}>
          {items}
        </ol>
      ) : (
        <ul key={at}>{items}</ul>
      );
    }
    case "table":
      return (
        <div key={at} class="markdown-table">
          <table>
            <thead>
              <tr>
                {block.head.map((cell, column) => (
                  <th key={column} scope="col">
                    {cell.map(inlineNode)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, index) => (
                <tr key={index}>
                  {row.map((cell, column) => (
                    <td key={column} class={block.aligns[column] === "right" ? "number" : undefined}>
                      {cell.map(inlineNode)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
  }
}

function inlineNode(node: Inline, at: number): ComponentChildren {
  switch (node.kind) {
    case "text":
      return node.text;
    case "code":
      return <code key={at}>{node.text}</code>;
    case "strong":
      return <strong key={at}>{node.children.map(inlineNode)}</strong>;
    case "em":
      return (
        <em key={at} class="slanted">
          {node.children.map(inlineNode)}
        </em>
      );
    case "del":
      return <del key={at}>{node.children.map(inlineNode)}</del>;
    case "link":
      return (
        <a key={at} class="link" href={node.href} rel={node.rel} target="_blank" title={node.href}>
          {node.children.map(inlineNode)}
        </a>
      );
    case "image":
      return node.href ? (
        <a key={at} class="link" href={node.href} rel="noopener noreferrer nofollow" target="_blank">
          {node.alt || "picture"}
        </a>
      ) : (
        <span key={at}>{node.alt}</span>
      );
    case "break":
      return <br key={at} />;
  }
}

/** Two texts as one, with the lines and words that differ. */
export function TextDiff({ left, right, label }: { left: string; right: string; label: string }) {
  return <DiffLines lines={useMemo(() => diffLines(left, right), [left, right])} label={label} />;
}

const MOST_LINES = 500;
const SIGNS = { same: "", add: "+", del: "−" } as const;

export function DiffLines({ lines, label }: { lines: readonly DiffLine[]; label: string }) {
  const [isWhole, unfold] = useState(false);
  const shown = isWhole ? lines : lines.slice(0, MOST_LINES);
  return (
    <div class="diff" role="group" aria-label={label}>
      {shown.map((line, at) => (
        <div key={at} class={`diff-line ${line.kind}`}>
          <span>{line.left}</span>
          <span>{line.right}</span>
          <span>{SIGNS[line.kind]}</span>
          <span>{line.parts.map((part, index) => (part.kind === "same" || line.parts.length === 1 ? part.text : <mark key={index}>{part.text}</mark>))}</span>
        </div>
      ))}
      {shown.length < lines.length && (
        <button type="button" class="fold-button" onClick={() => unfold(true)}>
          Show all {lines.length.toLocaleString("en-US")} lines
        </button>
      )}
    </div>
  );
}

/** A text that folds when it is long. */
export function FoldedText({ text, class: name = "" }: { text: string; class?: string }) {
  const [isWhole, unfold] = useState(false);
  const folded = useMemo(() => foldText(text), [text]);
  return (
    <>
      <pre class={`block ${name}`}>{folded && !isWhole ? folded.shown : text}</pre>
      {folded && !isWhole && (
        <button type="button" class="fold-button" onClick={() => unfold(true)}>
          {folded.label}
        </button>
      )}
    </>
  );
}

/** A text by its kind: Markdown, a diff, JSON or code. */
export function Text({ text, isStreaming = false }: { text: string; isStreaming?: boolean }) {
  const kind = useMemo(() => kindOfText(text), [text]);
  switch (kind.kind) {
    case "markdown":
      return <Markdown text={text} isStreaming={isStreaming} />;
    case "diff":
      return <DiffLines lines={parseUnifiedDiff(text)} label="Difference" />;
    case "json":
      return <FoldedText text={exactLines(kind.value)} />;
    case "code":
      return <FoldedText text={text} />;
    case "plain":
      return text.includes("\n") ? <FoldedText text={text} /> : <p class="plain-text">{text}</p>;
  }
}

/** A value by its type. */
export function Value({ value }: { value: Json }) {
  if (typeof value === "string") return <Text text={value} />;
  if (typeof value !== "object" || value === null) return <code>{JSON.stringify(value)}</code>;
  return <FoldedText text={exactLines(value)} />;
}
