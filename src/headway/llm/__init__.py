"""Calls to language models, counted from when they are sent until their stream has ended."""
