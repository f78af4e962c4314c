"""Pictures and captions: scan, decode, buckets, order, caches, loader, report."""
