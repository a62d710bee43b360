/** Give the browser a file to keep. `path` may be one in a folder: the name is its last part. */
export function download(path: string, content: BlobPart, type = "application/octet-stream"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = path.split("/").at(-1) ?? path;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
