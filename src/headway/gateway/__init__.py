"""A local proxy that puts tools which nobody can change under the same limits."""
