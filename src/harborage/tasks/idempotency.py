"""What makes two spawn requests the same request.

Pure. The fingerprint is taken before redaction, so that two secrets that look alike redacted stay two requests; being a
hash, it keeps neither.
"""

from __future__ import annotations

from hashlib import sha256

from harborage import codec
from harborage.tasks.model import Propagate, SpawnRequest

__all__ = ["fingerprint"]


def fingerprint(request: SpawnRequest) -> str:
    """A hash that is equal for two requests exactly when they ask for the same task.

    Compared: all four parts of the identity, kind, priority, parent, propagation as it takes effect, notification,
    description, query and input artifacts. Not compared: the group, and the key itself.
    """
    who = request.identity
    parts = [
        [who.tenant_id, who.user_id, who.session_id, who.run_id],
        request.kind,
        request.priority,
        request.parent_task_id,
        request.propagate_on_cancel or Propagate.CASCADE,
        request.notify_on_complete,
        request.description,
        request.query,
        request.input_artifact_ids,
    ]
    return sha256(codec.encode(parts, "spawn")).hexdigest()
