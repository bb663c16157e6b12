"""How long a whole space takes to plan."""
