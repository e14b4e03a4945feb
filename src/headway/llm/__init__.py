"""LLM calls (stand-in)."""
