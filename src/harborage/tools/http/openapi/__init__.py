"""OpenAPI documents, 3.0 and 3.1: read from disk, never fetched, and made into one operation for each tool."""

from __future__ import annotations
