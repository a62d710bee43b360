const SCHEMES: readonly string[] = ["http:", "https:", "mailto:"];
const MOST_HREF = 2_000;

/** Where a link may lead: a whole address by http, https or mailto; null for every other, relative ones too. */
export function safeHref(href: string): { readonly href: string; readonly host: string } | null {
  if (href.length > MOST_HREF || !/^(https?:\/\/|mailto:)/i.test(href)) return null;
  let url: URL;
  try {
    url = new URL(href);
  } catch {
    return null;
  }
  if (!SCHEMES.includes(url.protocol) || url.password !== "") return null;
  if (url.protocol !== "mailto:" && (url.username !== "" || url.hostname === "")) return null;
  return { href: url.href, host: url.host };
}
