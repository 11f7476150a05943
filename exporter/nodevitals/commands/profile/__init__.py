"""`nodevitals profile`."""
