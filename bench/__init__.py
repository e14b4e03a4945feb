"""How fast Headway is, beside its peers, on this machine, in this run."""
