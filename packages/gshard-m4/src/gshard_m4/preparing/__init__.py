"""From parallel corpora as downloaded to a prepared directory."""
