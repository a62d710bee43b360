import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Json } from "../json.ts";
import { isDiff, kindOfText, parseUnifiedDiff } from "./detect.ts";
import { jsonLines } from "./json-tree.ts";
import { safeHref } from "./links.ts";
import { parseMarkdown, StreamedMarkdown } from "./markdown.ts";
import { LINK_REL, type Block, type Inline } from "./nodes.ts";

/** A tree in few characters. */
function shape(blocks: readonly Block[]): string {
  return blocks.map(blockShape).join(" ");
}

function blockShape(block: Block): string {
  switch (block.kind) {
    case "paragraph":
      return `p(${inlineShape(block.children)})`;
    case "heading":
      return `h${block.level}(${inlineShape(block.children)})`;
    case "code":
      return `code:${block.language}${block.isOpen ? "…" : ""}(${block.text})`;
    case "list":
      return `${block.isOrdered ? `ol${block.start}` : "ul"}(${block.items.map((item) => `${item.isDone === null ? "" : item.isDone ? "[x]" : "[ ]"}${shape(item.blocks)}`).join("; ")})`;
    case "quote":
      return `quote(${shape(block.blocks)})`;
    case "rule":
      return "rule";
    case "table":
      return `table(${[block.head, ...block.rows].map((row) => row.map(inlineShape).join("|")).join("; ")})`;
  }
}

function inlineShape(nodes: readonly Inline[]): string {
  return nodes
    .map((node) => {
      switch (node.kind) {
        case "text":
          return node.text;
        case "code":
          return `\`${node.text}\``;
        case "link":
          return `<${node.href}>(${inlineShape(node.children)})`;
        case "image":
          return `image<${node.href}>(${node.alt})`;
        case "break":
          return "↵";
        default:
          return `${node.kind}(${inlineShape(node.children)})`;
      }
    })
    .join("");
}

describe("Markdown", () => {
  it.each([
    ["one\ntwo", "p(one\ntwo)"],
    ["# A *b*", "h1(A em(b))"],
    ["**bold** and _it_ and ~~gone~~", "p(strong(bold) and em(it) and del(gone))"],
    ["***both***", "p(strong(em(both)))"],
    ["snake_case_name and 2 * 3 * 4", "p(snake_case_name and 2 * 3 * 4)"],
    ["`a ``b` and `` c`d ``", "p(`a ``b` and `c`d`)"],
    ["a  \nb\\\nc", "p(a↵b↵c)"],
    ["\\*not\\* &lt;b&gt;", "p(*not* <b>)"],
    ["```py\nx = 1\n```\nafter", "code:py(x = 1) p(after)"],
    ["- a\n- b\n  - c\n\n  more\n- [x] d\n- [ ] e", "ul(p(a); p(b) ul(p(c)) p(more); [x]p(d); [ ]p(e))"],
    ["- a\n\n- b", "ul(p(a); p(b))"],
    ["3. x\n4. y", "ol3(p(x); p(y))"],
    ["> quoted\n> - x\n\nout", "quote(p(quoted) ul(p(x))) p(out)"],
    ["| a | b |\n|---|:-:|\n| 1 | `x\\|y` |", "table(a|b; 1|`x|y`)"],
    ["a\n---\nb", "p(a) rule p(b)"],
    ["    code\n      more", "code:(code\n  more)"],
    ["[a](https://e.org/x) <https://e.org> see https://e.org/y.", "p(<https://e.org/x>(a) <https://e.org/>(https://e.org) see <https://e.org/y>(https://e.org/y).)"],
    ["![cat](https://e.org/cat.png)", "p(image<https://e.org/cat.png>(cat))"],
    ["[mail](mailto:a@e.org)", "p(<mailto:a@e.org>(mail))"],
  ])("%j is %s", (text, expected) => expect(shape(parseMarkdown(text))).toBe(expected));

  it("treats what is open at the end of a stream as closed there", () => {
    const streaming = (text: string): string => shape(parseMarkdown(text, { isStreaming: true }));
    expect(streaming("Ordered **12 te")).toBe("p(Ordered strong(12 te))");
    expect(streaming("run `pip inst")).toBe("p(run `pip inst`)");
    expect(streaming("see [the page](https://exam")).toBe("p(see the page)");
    expect(streaming("```py\nx = ")).toBe("code:py…(x = )");
    expect(shape(parseMarkdown("Ordered **12 te"))).toBe("p(Ordered **12 te)");
  });
});

/** Every link and picture of a tree. */
function hrefs(blocks: readonly Block[]): string[] {
  const found: string[] = [];
  JSON.stringify(blocks, (key, value: unknown) => {
    if (key === "href" && typeof value === "string" && value) found.push(value);
    return value;
  });
  return found;
}

describe("hostile texts", () => {
  it.each([
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<style>*{display:none}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<!-- <b> -->",
  ])("%j is text", (text) => {
    const [block] = parseMarkdown(text);
    expect(block).toEqual({ kind: "paragraph", children: [{ kind: "text", text }] });
  });

  it.each([
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\nscript:alert(1)",
    " javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://e.org/1",
    "//evil.org",
    "/settings",
    "#inbox",
    "https://good.org@evil.org/",
    "https://user:pass@evil.org/",
    "http://",
    "https:evil.org",
  ])("%j is no link", (href) => {
    expect(safeHref(href)).toBeNull();
    expect(hrefs(parseMarkdown(`[x](${href}) ![y](${href}) <${href}>`))).toEqual([]);
  });

  it("show where a refused link would have led", () => {
    expect(shape(parseMarkdown("[click](javascript:x)"))).toBe("p(click (javascript:x))");
  });

  it("name the true host of a look-alike", () => {
    expect(safeHref("https://аррӏе.com/")?.host).toMatch(/^xn--/);
  });

  const pieces = fc.constantFrom(
    ..."*_~`[]()<>!&\\#->|\n \t".split(""),
    "**",
    "```",
    "a",
    "https://e.org",
    "javascript:alert(1)",
    "<script>",
    "1. ",
    "- ",
    "> ",
    "|---|",
    "word ",
    "\u202e",
  );
  const texts = fc.array(pieces, { maxLength: 60 }).map((all) => all.join(""));
  const INLINE = new Set(["text", "code", "strong", "em", "del", "link", "image", "break"]);
  const BLOCK = new Set(["paragraph", "heading", "code", "list", "quote", "rule", "table"]);

  it("give nothing but the kinds of nodes that there are, and links that are safe", () => {
    fc.assert(
      fc.property(texts, fc.boolean(), (text, isStreaming) => {
        const blocks = parseMarkdown(text, { isStreaming });
        JSON.stringify(blocks, (key, value: unknown) => {
          if (key === "kind") expect(INLINE.has(value as string) || BLOCK.has(value as string)).toBe(true);
          if (key === "href" && value) expect(value).toMatch(/^(https?:\/\/|mailto:)/);
          if (key === "rel") expect(value).toBe(LINK_REL);
          return value;
        });
      }),
      { numRuns: 400 },
    );
  });

  it("come out the same whether they are streamed or read at once, however they are cut", () => {
    fc.assert(
      fc.property(texts, fc.array(fc.nat(200)), (text, cuts) => {
        const streamed = new StreamedMarkdown();
        for (const cut of cuts.sort((a, b) => a - b)) streamed.update(text.slice(0, cut));
        expect(streamed.update(text, false)).toEqual(parseMarkdown(text));
      }),
      { numRuns: 400 },
    );
  });

  it.each([
    ["stars", "*a ".repeat(20_000)],
    ["brackets", "[".repeat(40_000)],
    ["open links", "[a](".repeat(12_000)],
    ["ticks", Array.from({ length: 300 }, (_, at) => "`".repeat(at)).join(" ")],
    ["marks", "*_".repeat(30_000)],
    ["quotes", `${">".repeat(30_000)} x`],
    ["lists", Array.from({ length: 500 }, (_, at) => `${" ".repeat(at * 2)}- x`).join("\n")],
    ["bars", `${"|".repeat(5_000)}\n${"|-".repeat(5_000)}|\n`.repeat(5)],
    ["addresses", "https://e.org/".repeat(8_000)],
    ["rules", `${"* ".repeat(30_000)}x`],
    ["table rules", `a|b\n${"|-".repeat(40_000)}x`],
  ])("of many %s take no long time", (_, text) => {
    const start = performance.now();
    parseMarkdown(text);
    parseMarkdown(text, { isStreaming: true });
    expect(performance.now() - start).toBeLessThan(3_000);
  });
});

describe("a streamed text", () => {
  it("reads only its last block again", () => {
    const streamed = new StreamedMarkdown();
    const [first] = streamed.update("# Title\n\nOne paragraph.\n\nAnd");
    const later = streamed.update("# Title\n\nOne paragraph.\n\nAnd one that grows.");
    expect(later[0]).toBe(first);
    expect(shape(later)).toBe("h1(Title) p(One paragraph.) p(And one that grows.)");
    expect(shape(streamed.update("Another text"))).toBe("p(Another text)");
  });
});

describe("JSON", () => {
  it("is lines that can be folded", () => {
    const lines = jsonLines({ a: 1, list: ["x", { y: null }], empty: {} });
    expect(lines.map((line) => `${"  ".repeat(line.depth)}${line.key && `${line.key}: `}${line.text}${line.hasComma ? "," : ""}`)).toEqual([
      "{",
      "  a: 1,",
      "  list: [",
      '    "x",',
      "    {",
      "      y: null",
      "    }",
      "  ],",
      "  empty: {}",
      "}",
    ]);
    expect(jsonLines({ list: [1, 2] }, new Set(["$.list"]))[1]).toMatchObject({ text: "[ 2 ]", isExpanded: false });
  });

  it("is read back from its unfolded lines", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 2 }), (value) => {
        const lines = jsonLines(value as Json);
        const text = lines.map((line) => `${line.depth > 0 && line.kind !== "end" && isMember(lines, line) ? `${JSON.stringify(line.key)}:` : ""}${line.text}${line.hasComma ? "," : ""}`).join("");
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(new Set(lines.map((line) => line.path)).size).toBeLessThanOrEqual(lines.length);
      }),
    );
  });
});

function isMember(lines: ReturnType<typeof jsonLines>, line: ReturnType<typeof jsonLines>[number]): boolean {
  const parent = lines.slice(0, lines.indexOf(line)).findLast((other) => other.depth === line.depth - 1 && other.kind !== "end");
  return parent?.kind === "object";
}

describe("what a text is", () => {
  const DIFF = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n";
  it.each([
    ["just words", "plain"],
    ["**bold** words", "markdown"],
    ['{"a": 1}', "json"],
    [DIFF, "diff"],
    ["def f(x):\n    return x", "code"],
    ["SELECT * FROM runs", "code"],
    ["<html><script>x</script></html>", "code"],
    ["{not json}", "plain"],
    ["2 * 3 * 4 = 24", "plain"],
  ])("%j is %s", (text, kind) => expect(kindOfText(text).kind).toBe(kind));

  it("of a diff are lines with the numbers of both sides", () => {
    expect(isDiff(DIFF)).toBe(true);
    const lines = parseUnifiedDiff(DIFF).filter((line) => line.left !== null || line.right !== null);
    expect(lines.map((line) => [line.kind, line.left, line.right, line.parts[0]?.text]).slice(0, 3)).toEqual([
      ["same", 1, 1, "same"],
      ["del", 2, null, "old"],
      ["add", null, 2, "new"],
    ]);
  });
});
