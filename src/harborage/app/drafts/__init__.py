"""Drafts: projects that a page edits at a development server before they are written into the project's folder."""
