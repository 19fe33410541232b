"""What the workers do with Arrow batches; no module here imports pyspark."""
