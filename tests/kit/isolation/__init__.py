"""Canaries: many principals work side by side, and whatever one of them wrote must never be shown to another."""
