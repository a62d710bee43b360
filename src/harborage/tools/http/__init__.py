"""Tools over HTTP: declared endpoints, and whole OpenAPI documents."""

from __future__ import annotations
