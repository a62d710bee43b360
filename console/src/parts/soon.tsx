import { Disconnected, Failure, Notice, SkeletonRows } from "./states.tsx";
import type { Resource } from "../wire/resource.ts";

/** A page whose contents are still to be drawn: it shows the states that every page has, and that it is reached. */
export function Soon({ noun, resource, reload }: { noun: string; resource: Resource<unknown>; reload: () => void }) {
  switch (resource.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun={noun} />;
    case "failed":
      return <Failure noun={noun} error={resource.error} onRetry={reload} />;
    case "ready":
      return <Notice glyph="pending" title="Not built yet" />;
  }
}
