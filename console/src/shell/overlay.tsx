import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** What lies over the page and keeps the focus until it is closed: by Escape, by a click beside it, or by itself. */
export function Overlay(props: { label: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={props.wide ? "overlay wide" : "overlay"}
      aria-label={props.label}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === box.current) props.onClose();
      }}
    >
      <div class="overlay-inside">{props.children}</div>
    </dialog>
  );
}
