import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { connection } from "../wire/connection.ts";
import type { WireError } from "../wire/error.ts";
import { Button, ButtonLink } from "./button.tsx";
import { Glyph, type GlyphName } from "./glyph.tsx";
import { Icon } from "./icon.tsx";
import type { IconName } from "./icon-paths.ts";

/** A page or pane that has nothing to show, why, and what to do about it. */
export function Notice(props: { glyph?: GlyphName; icon?: IconName; title: string; children?: ComponentChildren; actions?: ComponentChildren; role?: "alert" | "status" }) {
  return (
    <div class="notice" role={props.role}>
      {props.glyph && <Glyph name={props.glyph} />}
      {props.icon && <Icon name={props.icon} />}
      <h2>{props.title}</h2>
      {props.children && <p>{props.children}</p>}
      {props.actions && <div class="actions">{props.actions}</div>}
    </div>
  );
}

/** `noun` is in the plural: "tasks". Empty by a filter is not empty for good. */
export function Empty(props: { title: string; children?: ComponentChildren; actions?: ComponentChildren }) {
  return <Notice glyph="pending" {...props} />;
}

export function NoMatch(props: { noun: string; children?: ComponentChildren; onClear: () => void; actions?: ComponentChildren }) {
  return (
    <Notice
      glyph="pending"
      title={`No ${props.noun} matches`}
      actions={
        <>
          <Button kind="primary" onClick={props.onClear}>
            Clear filters
          </Button>
          {props.actions}
        </>
      }
    >
      {props.children}
    </Notice>
  );
}

export function Disconnected() {
  return (
    <Notice
      icon="unplugged"
      title="Not connected to a runtime"
      actions={
        <ButtonLink kind="primary" icon="link" href="/settings">
          Attach
        </ButtonLink>
      }
    >
      Start one with <code>harborage dev</code>, or attach to one that runs.
    </Notice>
  );
}

/** What could not be loaded, why, and a way on. A missing scope is told as what it is. */
export function Failure({ noun, error, onRetry }: { noun: string; error: WireError; onRetry: () => void }) {
  return error.isForbidden ? <Forbidden noun={noun} error={error} /> : <Broken noun={noun} error={error} onRetry={onRetry} />;
}

function Broken({ noun, error, onRetry }: { noun: string; error: WireError; onRetry: () => void }) {
  return (
    <Notice
      glyph="failed"
      role="alert"
      title={`${noun.charAt(0).toUpperCase()}${noun.slice(1)} could not be loaded`}
      actions={
        <>
          <Button kind="primary" icon="replay" onClick={onRetry}>
            Try again
          </Button>
          <CopyButton text={error.details}>Copy details</CopyButton>
        </>
      }
    >
      <code>{error.code}</code>: {error.message}. {error.status ? `HTTP ${error.status}` : "No answer came"} at{" "}
      {error.at.toLocaleTimeString("en-GB")}. What was here is hidden, because it may be wrong.
    </Notice>
  );
}

function Forbidden({ noun, error }: { noun: string; error: WireError }) {
  const tenant = connection.value?.tenant ?? "";
  return (
    <Notice
      icon="lock"
      role="alert"
      title={`Your token may not see these ${noun}`}
      actions={
        <>
          <ButtonLink kind="primary" href="/overview">
            Back to {tenant || "the overview"}
          </ButtonLink>
          <ButtonLink href="/settings/tokens">Token settings</ButtonLink>
        </>
      }
    >
      <code>{error.code}</code>: {error.message}. Ask whoever runs this runtime for a token with that scope.
    </Notice>
  );
}

/** The same for a rail, a tab or a section, which fails alone. */
export function PartFailure({ noun, error, onRetry }: { noun: string; error: WireError; onRetry: () => void }) {
  return (
    <div class="part-failure" role="alert">
      <span class="state is-failed">
        <Glyph name="failed" />
        <b>{noun} could not be loaded</b>
      </span>
      <p class="small">
        <code>{error.code}</code>: {error.message}
      </p>
      <Button small icon="replay" onClick={onRetry}>
        Try again
      </Button>
    </div>
  );
}

/** True after 150 ms, so that what comes quickly shows no skeleton. */
export function useIsLate(ms = 150): boolean {
  const [isLate, late] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => late(true), ms);
    return () => clearTimeout(timer);
  }, [ms]);
  return isLate;
}

/** A list that is on its way, in the shape that it will have. */
export function SkeletonRows({ noun, rows = 8 }: { noun: string; rows?: number }) {
  const isLate = useIsLate();
  return (
    <div class="skeleton-rows" role="status" aria-label={`Loading ${noun}`}>
      {isLate &&
        Array.from({ length: rows }, (_, index) => (
          <div key={index} aria-hidden="true">
            <i class="skeleton dot" />
            <i class={`skeleton wide w${index % 5}`} />
            <i class="grow" />
            <i class="skeleton" />
            <i class="skeleton hide-small" />
            <i class="skeleton hide-small" />
          </div>
        ))}
    </div>
  );
}

/** Copies a text, and says so in its own place. */
export function CopyButton({ text, children, label }: { text: string; children?: ComponentChildren; label?: string }) {
  const [done, say] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => say(false), 2_000);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => say(true));
  if (children === undefined) {
    return <Button small kind="quiet" icon={done ? "check" : "copy"} label={done ? "Copied" : (label ?? "Copy")} onClick={copy} />;
  }
  return (
    <Button icon={done ? "check" : "copy"} onClick={copy}>
      {done ? "Copied" : children}
    </Button>
  );
}
