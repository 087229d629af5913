"""Record batches and message sets: headers, checksums, compression, builders and readers. Pure."""
