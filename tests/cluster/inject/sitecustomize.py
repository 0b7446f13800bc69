"""Python imports this when it starts, where PYTHONPATH names this folder: so every worker gets its fault."""

import tests.cluster.faults  # noqa: F401
