"""The service of a cluster that runs checks on demand: `nodevitals hub` (extra `hub`)."""
