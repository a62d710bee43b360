/**
 * A text as a tree of what may be shown. There is no node for markup of any kind, so nothing in a text can run: a page
 * makes elements of these kinds alone and puts texts in as texts.
 */
export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "strong" | "em" | "del"; readonly children: readonly Inline[] }
  | { readonly kind: "link"; readonly href: string; readonly rel: typeof LINK_REL; readonly host: string; readonly children: readonly Inline[] }
  /** A picture from outside is never loaded; it is shown by its words, with a link where that is safe. */
  | { readonly kind: "image"; readonly alt: string; readonly href: string }
  | { readonly kind: "break" };

export type Align = "left" | "right" | "center" | "";

export interface ListItem {
  /** Null where the item has no box. */
  readonly isDone: boolean | null;
  readonly blocks: readonly Block[];
}

export type Block =
  | { readonly kind: "paragraph"; readonly children: readonly Inline[] }
  | { readonly kind: "heading"; readonly level: number; readonly children: readonly Inline[] }
  /** `isOpen`: the end has not been streamed yet. */
  | { readonly kind: "code"; readonly language: string; readonly text: string; readonly isOpen: boolean }
  | { readonly kind: "list"; readonly isOrdered: boolean; readonly start: number; readonly items: readonly ListItem[] }
  | { readonly kind: "quote"; readonly blocks: readonly Block[] }
  | { readonly kind: "rule" }
  | {
      readonly kind: "table";
      readonly aligns: readonly Align[];
      readonly head: readonly (readonly Inline[])[];
      readonly rows: readonly (readonly (readonly Inline[])[])[];
    };

export const LINK_REL = "noopener noreferrer nofollow";
