"""Jobs: commands kept durably, which wait for their lease and then run."""
