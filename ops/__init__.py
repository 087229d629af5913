"""What surrounds the code: benchmarks, documents, decisions, deployment."""
