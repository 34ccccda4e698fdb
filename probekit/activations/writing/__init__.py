"""Making a cache: plan, extraction, the unfinished file, who may write it."""
